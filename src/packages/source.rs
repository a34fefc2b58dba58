//! NVIDIA's own repositories, for machines whose sources lack what is needed (PURE).

use crate::paths;

/// A repository without distributions, as NVIDIA's are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// What its files on the machine are called by.
    pub source: Source,
    /// Where its list is.
    pub url: String,
    /// Where its key is.
    pub key_url: String,
    /// The key's fingerprint, by which it is known.
    pub fingerprint: String,
}

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Drivers and their libraries, of all versions.
    Cuda,
    /// The container toolkit.
    Toolkit,
}

impl Source {
    /// All of them.
    pub const ALL: [Source; 2] = [Source::Cuda, Source::Toolkit];

    /// Its list, its key, and its rank among the machine's other sources.
    pub fn files(self) -> &'static [&'static str] {
        match self {
            Source::Cuda => &paths::CUDA_SOURCE,
            Source::Toolkit => &paths::TOOLKIT_SOURCE,
        }
    }
}

impl Repository {
    /// NVIDIA's for an Ubuntu; `system`: `ubuntu 24.04`.
    pub fn cuda(system: &str, arch: &str) -> Option<Self> {
        let version = system.strip_prefix("ubuntu ")?.replace('.', "");
        let arch = match arch {
            "amd64" => "x86_64",
            "arm64" => "sbsa",
            _ => return None,
        };
        let url = format!("https://developer.download.nvidia.com/compute/cuda/repos/ubuntu{version}/{arch}");
        Some(Self {
            source: Source::Cuda,
            key_url: format!("{url}/3bf863cc.pub"),
            url,
            fingerprint: "EB693B3035CD5710E231E123A4B469963BF863CC".into(),
        })
    }

    /// That of the container toolkit, one for all.
    pub fn toolkit(arch: &str) -> Self {
        let base = "https://nvidia.github.io/libnvidia-container";
        Self {
            source: Source::Toolkit,
            url: format!("{base}/stable/deb/{arch}"),
            key_url: format!("{base}/gpgkey"),
            fingerprint: "C95B321B61E88C1809C4F759DDCAE044F796ECB0".into(),
        }
    }

    /// The text of its list, sources.list(5); `key`: where the key is.
    pub fn text(&self, key: &str) -> String {
        format!(
            "# Written by the charm concourse-ci-machine; removed when it is not needed any more.\n\
             Types: deb\nURIs: {}\nSuites: /\nSigned-By: {key}\n",
            self.url.trim_end_matches('/')
        )
    }

    /// apt_preferences(5): it exchanges nothing that the machine has. The toolkit's holds nothing but the toolkit, which
    /// is to be upgraded as everything else is.
    pub fn preferences(&self) -> Option<String> {
        let host = self.url.split('/').nth(2).unwrap_or_default().split(':').next().unwrap_or_default();
        let text = format!("Package: *\nPin: origin \"{host}\"\nPin-Priority: 90\n");
        (self.source == Source::Cuda).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidias_own() {
        let cuda = Repository::cuda("ubuntu 22.04", "amd64").unwrap();
        assert_eq!(cuda.url, "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64");
        assert_eq!(
            cuda.preferences().unwrap().lines().nth(1),
            Some("Pin: origin \"developer.download.nvidia.com\"")
        );
        assert_eq!(Repository::cuda("debian 12", "amd64"), None);
        assert_eq!(Repository::cuda("ubuntu 24.04", "riscv64"), None);
        let toolkit = Repository::toolkit("amd64");
        assert!(toolkit.text("/k").ends_with(
            "URIs: https://nvidia.github.io/libnvidia-container/stable/deb/amd64\nSuites: /\nSigned-By: /k\n"
        ));
        assert_eq!(toolkit.preferences(), None);
    }
}
