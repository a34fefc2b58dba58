//! Which of the units that a task could get its image can use (PURE). It is asked before units are chosen, and waited
//! for: of two GPUs a task that wants one gets the one that its image runs on, and none that could never run waits.

use super::devices::{Devices, Driver, Unit, Vendor};
use super::policy::Access;
use super::request::Request;
use super::{Refusal, require};

/// The units whose driver and kind meet the image's `NVIDIA_REQUIRE_*`.
///
/// # Errors
/// The task would get units of NVIDIA, or only with them what it asks for, and the image can't use them; says why.
pub fn able<'a>(
    env: &[(String, String)],
    devices: &Devices,
    request: &Request,
    access: Access,
    units: &[&'a Unit],
) -> Result<Vec<&'a Unit>, Refusal> {
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let none = Driver::default();
    let driver = devices.vendors.get(&Vendor::Nvidia).unwrap_or(&none);
    let (mut able, mut why) = (vec![], None);
    for unit in units {
        match require::check(&env, driver, unit) {
            Err(unmet) if unit.vendor == Vendor::Nvidia => why = why.or(Some(unmet)),
            _ => able.push(*unit),
        }
    }
    let Some(why) = why else { return Ok(able) };
    let access = match access {
        Access::Exclusive if request.asked().is_some() => Access::Request,
        Access::Exclusive => Access::Shared,
        other => other,
    };
    let serve = |units: &[&Unit]| request.choose(access, units).is_ok_and(|chosen| !chosen.is_empty());
    let nvidia = |unit: &&Unit| unit.vendor == Vendor::Nvidia;
    let own: Vec<&Unit> = units.iter().copied().filter(nvidia).collect();
    match () {
        // Others are no help to an image that was made for these.
        () if !able.iter().any(nvidia) && serve(&own) => Err(Refusal::new(why)),
        () if serve(&able) => Ok(able),
        () if serve(units) => Err(Refusal::new(why)),
        // It asks for what this worker does not have: the words about that are better than ours.
        () => Ok(units.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Exclusive, Request as Asked, Shared};
    use serde_json::json;

    /// A V100 and two H100 of NVIDIA, and a GPU of AMD.
    fn devices() -> Devices {
        let nvidia = |id: &str, name: &str, arch: &str| json!({"id": id, "names": [name], "vendor": "nvidia", "compute_capability": arch, "edits": {}});
        let units = json!([nvidia("V100", "0", "7.0"), nvidia("H100", "1", "9.0"), nvidia("H100b", "2", "9.0"),
            {"id": "amd", "names": ["0"], "vendor": "amd", "edits": {}}]);
        let devices = json!({"format": 1, "vendors": {"nvidia": {"cuda": "13.0"}}, "units": units});
        serde_json::from_value(devices).unwrap()
    }

    fn able(access: Access, image: &str, author: &str) -> String {
        let words = format!("{image} ATC_EXTERNAL_URL=x {author}");
        let pair = |word: &str| word.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()));
        let env: Vec<_> = words.split_whitespace().filter_map(pair).collect();
        let (devices, request) = (devices(), Request::parse(&env).unwrap());
        let units: Vec<&Unit> = devices.units.iter().collect();
        match super::able(&env, &devices, &request, access, &units) {
            Ok(units) => units.iter().map(|unit| unit.id.as_str()).collect::<Vec<_>>().join(" "),
            Err(why) => why.to_string().split_inclusive(')').next().unwrap().to_owned(),
        }
    }

    #[test]
    fn units_that_an_image_can_use() {
        let (all, some) = ("V100 H100 H100b amd", "H100 H100b amd");
        let (arch, cuda) = ("NVIDIA_REQUIRE_ARCH=arch>=8.0", "NVIDIA_REQUIRE_CUDA=cuda>=14.2");
        let no_arch = "the image needs arch>=8.0 (NVIDIA_REQUIRE_ARCH)";
        let no_cuda = "the image needs CUDA 14.2 (NVIDIA_REQUIRE_CUDA)";
        for (access, image, author, wanted) in [
            (Asked, "", "GPU_COUNT=1", all),
            // The others do.
            (Asked, arch, "GPU_COUNT=1", some),
            (Exclusive, arch, "GPU_COUNT=1", some),
            (Shared, arch, "", some),
            (Exclusive, arch, "", some),
            (Asked, arch, "NVIDIA_VISIBLE_DEVICES=1", some),
            // Only with the one that it can't use.
            (Asked, arch, "NVIDIA_VISIBLE_DEVICES=0", no_arch),
            (Exclusive, arch, "NVIDIA_VISIBLE_DEVICES=0,1", no_arch),
            (Asked, arch, "GPU_COUNT=4", no_arch),
            (Asked, arch, "NVIDIA_DISABLE_REQUIRE=1 GPU_COUNT=4", all),
            // None does.
            (Asked, cuda, "GPU_COUNT=1", no_cuda),
            (Exclusive, cuda, "GPU_COUNT=1", no_cuda),
            (Shared, cuda, "", no_cuda),
            // It is not about them.
            (Asked, cuda, "AMD_VISIBLE_DEVICES=all", "amd"),
            (Shared, cuda, "NVIDIA_VISIBLE_DEVICES=none AMD_VISIBLE_DEVICES=all", "amd"),
            // There is no such thing here anyway.
            (Asked, arch, "GPU_COUNT=5", all),
            (Asked, cuda, "NVIDIA_VISIBLE_DEVICES=7", all),
        ] {
            assert_eq!(able(access, image, author), wanted, "{access:?} {image} {author}");
        }
    }
}
