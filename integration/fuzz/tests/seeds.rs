//! The seeds hold, whole and cut anywhere, and every target has some.

use std::fs;
use std::path::Path;

#[test]
fn what_must_hold_holds_of_the_seeds() {
    for (target, holds) in kota_fuzz::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
        let seeds: Vec<_> =
            fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())).collect();
        assert!(!seeds.is_empty(), "{target}");
        for seed in seeds {
            let bytes = fs::read(seed.unwrap().path()).unwrap();
            (0..=bytes.len()).for_each(|cut| holds(&bytes[..cut]));
        }
    }
}
