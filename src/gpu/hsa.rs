//! Chips that ROCm's libraries have no code for, and the chip whose code runs on them (PURE). `hsa.tsv` is the table.

const TABLE: &str = include_str!("hsa.tsv");

/// `HSA_OVERRIDE_GFX_VERSION` for a chip; `None`: it needs none.
pub fn version(gfx: &str) -> Option<&'static str> {
    let mut rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    rows.find_map(|row| row.strip_prefix(gfx)?.strip_prefix('\t')?.split('\t').next())
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn only_what_has_no_code_of_its_own() {
        for (chip, wanted) in [
            ("gfx1103", Some("11.0.0")),
            ("gfx1035", Some("10.3.0")),
            ("gfx90c", Some("9.0.0")),
            ("gfx803", Some("8.0.3")),
        ] {
            assert_eq!(version(chip), wanted);
        }
        for native in ["gfx942", "gfx90a", "gfx1030", "gfx1100", "gfx1101", "gfx1150", "gfx1201", "", "#"] {
            assert_eq!(version(native), None, "{native}");
        }
    }
}
