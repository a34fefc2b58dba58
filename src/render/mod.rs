//! Whole texts of files, from data.

pub mod env;
pub mod web;
pub mod worker;

use crate::config::Proxy;

/// The operator's proxies, in both spellings: programs differ in which one they read.
fn proxies(env: &mut env::EnvFile, proxy: &Proxy) {
    for (name, value) in proxy.variables() {
        env.set(name, value.expose());
    }
}
