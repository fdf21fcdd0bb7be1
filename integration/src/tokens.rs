//! Tokens that the bootstrap's demo issuer has signed (Ed25519; its private half no longer exists).

/// Subject `alice`, plan `gold`, valid until 2100.
pub const ALICE_GOLD: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImRlbW8iLCJ0eXAiOiJKV1QifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwic3ViIjoiYWxpY2UiLCJwbGFuIjoiZ29sZCIsImV4cCI6NDEwMjQ0NDgwMH0.KbcptEXZelB-nFB5CrDudffgv58HthXWExbhaOMVYTJ_VOa5FY2OKGNYto-olU9uv6bnfQDvjodKNFJnmQE8Cw";

/// Subject `bob`, plan `free`, valid until 2100.
pub const BOB_FREE: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImRlbW8iLCJ0eXAiOiJKV1QifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwic3ViIjoiYm9iIiwicGxhbiI6ImZyZWUiLCJleHAiOjQxMDI0NDQ4MDB9.oIgDubpq1Roex2xJTR8xBL3O9I8d52IGNERIsLz22y2Bxyx2-pTmYKv4n7Rc0sks8FCe4Iu3XuyIrwRXG8k1Dw";

/// Subject `carol`, plan `gold`, expired in 2023.
pub const CAROL_EXPIRED: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImRlbW8iLCJ0eXAiOiJKV1QifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwic3ViIjoiY2Fyb2wiLCJwbGFuIjoiZ29sZCIsImV4cCI6MTcwMDAwMDAwMH0.wlz9VsfDG7ZpqGK5Y4XpcmDVcqj7RHuwyH-RnPOebG5BxnHJJ78Sab_8NzRFd2LLdUJ_0zkjSuJvcG9L9TzWAg";
