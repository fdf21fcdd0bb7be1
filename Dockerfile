# Two images from one build: `--target kota` (the sidecar and the echo upstream) and `--target envoy` (Envoy with the filter in it).
FROM rust:1.95-bookworm AS build
WORKDIR /kota
COPY . .
RUN rustup target add wasm32-wasip1 \
 && cargo build --locked --release -p kota \
 && cargo build --locked --profile wasm --target wasm32-wasip1 -p kota-filter

# Envoy's own image runs it as 101:101; the sidecar takes the same, so that the socket between them is open to these two alone. A named
# volume takes owner and mode from the directory that it is first mounted over, hence the directory in both.
FROM debian:bookworm-slim AS kota
RUN install -d -o 101 -g 101 -m 0750 /run/kota
# Whom to trust where a Redis is behind TLS and --redis-ca names nobody else.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /kota/target/release/kota /usr/local/bin/kota
USER 101:101
ENTRYPOINT ["kota"]

FROM envoyproxy/envoy:v1.40.0 AS envoy
RUN install -d -o 101 -g 101 -m 0750 /run/kota
COPY --from=build /kota/target/wasm32-wasip1/wasm/kota_filter.wasm /etc/kota/kota_filter.wasm
COPY envoy/envoy.yaml /etc/kota/envoy.yaml
