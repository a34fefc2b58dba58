use super::*;
use crate::oci::devices::{Edits, Vendor};
use proptest::prelude::*;

/// As in nvidia/cuda:12.4.1-base-ubuntu22.04, shortened in the middle.
const CUDA_12_4: &str = "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=470,driver<471 \
    brand=nvidia,driver>=470,driver<471 brand=geforce,driver>=470,driver<471 brand=geforcertx,driver>=470,driver<471 \
    brand=tesla,driver>=525,driver<526 brand=nvidiartx,driver>=525,driver<526 brand=tesla,driver>=535,driver<536 \
    brand=unknown,driver>=535,driver<536 brand=geforce,driver>=535,driver<536";

fn driver(version: &str, cuda: &str) -> Driver {
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Driver { version: known(version), cuda: known(cuda), edits: Edits::default() }
}

fn unit(brand: &str, arch: &str) -> Unit {
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let unit = Unit::new(Vendor::Nvidia, "GPU-1", &["0"]);
    Unit { compute_capability: known(arch), brand: known(brand), ..unit }
}

/// On a Tesla of compute capability 8.0 with driver 550.163.01, which runs CUDA 12.4.
fn meets(env: &[(&str, &str)]) -> Result<(), String> {
    check(env, &driver("550.163.01", "12.4"), &unit("tesla", "8.0"))
}

#[test]
fn images_of_nvidia() {
    let cuda = |text| [("NVIDIA_REQUIRE_CUDA", text)];
    for (version, runs, brand, fits) in [
        ("550.163.01", "12.4", "tesla", true),
        ("580.65.06", "13.0", "geforce", true),
        ("535.183.01", "12.2", "tesla", true), // an old branch that NVIDIA supports for data centres
        ("470.256.02", "11.4", "TESLA", true),
        ("471.0", "11.4", "tesla", false), // driver<471
        ("530.41.03", "12.1", "tesla", false),
        ("535.183.01", "12.2", "quadro", false),
        ("535.183.01", "12.2", "", true), // the brand isn't known: NVIDIA lets it through
        ("530.41.03", "", "tesla", true), // nor is what CUDA it runs
        ("", "12.1", "quadro", false),    // an unknown driver doesn't help another brand
    ] {
        let found = check(&cuda(CUDA_12_4), &driver(version, runs), &unit(brand, "8.0"));
        assert_eq!(found.is_ok(), fits, "{version} {runs} {brand}: {found:?}");
    }
}

#[test]
fn conditions() {
    for (text, fits) in [
        ("cuda>=12.4", true),
        ("cuda>=12.4.0.0", true),
        ("cuda>12.4", false),
        ("cuda=12.4", true),
        ("cuda!=12.4", false),
        ("cuda<=12.3", false),
        ("cuda<13", true),
        ("cuda>=12.10", false), // numbers, not decimals
        ("driver>=550", true),
        ("driver>=550.163.2", false),
        ("arch>=8.0", true),
        ("arch>=9.0", false),
        ("brand=tesla", true),
        ("brand!=tesla", false),
        ("BRAND=Tesla", true),
        ("cuda>=13,brand=tesla", false),
        ("cuda>=13 brand=tesla", true),
        ("cuda>=12,,", true),
        ("", true),
        ("   ", true),
        ("  cuda>=99", false),
        ("colour=red", true), // a property that nobody knows asks for nothing
        ("colour=red,cuda>=99", false),
        ("colour=red cuda>=99", false), // nor does it meet anything
    ] {
        let found = meets(&[("NVIDIA_REQUIRE_X", text)]);
        assert_eq!(found.is_ok(), fits, "{text:?}: {found:?}");
    }
}

#[test]
fn mistakes_are_named() {
    for (text, why) in [
        ("cuda", "which is no condition"),
        ("cuda>=", "which compares with nothing"),
        ("cuda=>12", "whose operator is none of = != < <= > >="),
        ("cuda>=twelve", "whose value is no version"),
        ("cuda>=12.", "whose value is no version"),
        ("brand>tesla", "but brands have no order: only = and != fit"),
        ("cuda>=1 driver", "which is no condition"),
    ] {
        let sentence = meets(&[("NVIDIA_REQUIRE_X", text)]).unwrap_err();
        assert!(
            sentence.contains(why) && sentence.contains("NVIDIA_DISABLE_REQUIRE"),
            "{text:?}: {sentence}"
        );
    }
}

#[test]
fn variables() {
    let ok = |env: &[(&str, &str)]| meets(env).is_ok();
    assert!(ok(&[]));
    assert!(
        !ok(&[("NVIDIA_REQUIRE_CUDA", "cuda>=12.4"), ("NVIDIA_REQUIRE_DRIVER", "driver>=999")]),
        "all of them"
    );
    assert!(
        ok(&[("NVIDIA_REQUIRE_CUDA", "cuda>=99"), ("NVIDIA_REQUIRE_CUDA", "cuda>=11")]),
        "the last counts"
    );
    assert!(!ok(&[("NVIDIA_REQUIRE_CUDA", "cuda>=11"), ("NVIDIA_REQUIRE_CUDA", "cuda>=99")]));
    assert!(ok(&[
        ("NVIDIA_REQUIRE_JETPACK", "l4t>=99 cuda>=99"),
        ("NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS", "")
    ]));
    for (disable, off) in
        [("1", true), ("true", true), ("True", true), ("yes", false), ("0", false), ("", false)]
    {
        assert_eq!(
            ok(&[("NVIDIA_REQUIRE_CUDA", "cuda>=99"), ("NVIDIA_DISABLE_REQUIRE", disable)]),
            off,
            "{disable}"
        );
    }
}

#[test]
fn images_from_before_requirements() {
    let ok = |env: &[(&str, &str)]| meets(env).is_ok();
    assert!(ok(&[("CUDA_VERSION", "12.4.1")]));
    assert!(!ok(&[("CUDA_VERSION", "12.6.0")]));
    assert!(!ok(&[("CUDA_VERSION", "13")]));
    assert!(!ok(&[("CUDA_VERSION", "12.6.0"), ("NVIDIA_REQUIRE_CUDA", "")]));
    assert!(
        ok(&[("CUDA_VERSION", "12.6.0"), ("NVIDIA_REQUIRE_CUDA", "cuda>=12.0")]),
        "its own word goes first"
    );
    assert!(ok(&[("CUDA_VERSION", "12.6.0"), ("NVIDIA_DISABLE_REQUIRE", "true")]));
    assert!(ok(&[("CUDA_VERSION", "cu121")]), "not a version, so not NVIDIA's");
}

#[test]
fn sentences() {
    let said =
        check(&[("NVIDIA_REQUIRE_CUDA", CUDA_12_4)], &driver("530.41.03", "12.1"), &unit("tesla", "8.0"));
    assert_eq!(
        said.unwrap_err(),
        "the image needs CUDA 12.4 (NVIDIA_REQUIRE_CUDA), and this worker has driver 530.41.03, which runs CUDA up to \
         12.1: use an image for CUDA 12.1 or older, or a worker with a newer driver; NVIDIA_DISABLE_REQUIRE: \"true\" \
         in the task's params tries it all the same"
    );
    assert_eq!(
        meets(&[("NVIDIA_REQUIRE_ARCH", "arch>=9.0,brand=tesla")]).unwrap_err(),
        "the image needs arch>=9.0,brand=tesla (NVIDIA_REQUIRE_ARCH), and this worker has driver 550.163.01, which \
         runs CUDA up to 12.4 (arch 8.0, brand tesla): use another image or another worker; NVIDIA_DISABLE_REQUIRE: \
         \"true\" in the task's params tries it all the same"
    );
}

proptest! {
    #[test]
    fn never_panics(
        env in prop::collection::vec(("(NVIDIA_REQUIRE_[A-Z]{0,4}|CUDA_VERSION|.*)", "([a-z]{0,6}[<>=!]{0,3}[0-9.]{0,6}[ ,]?){0,6}|.*"), 0..6),
        version in ".*", cuda in "[0-9.]*",
    ) {
        let env: Vec<(&str, &str)> = env.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let _ = check(&env, &driver(&version, &cuda), &unit("tesla", &cuda));
    }
}
