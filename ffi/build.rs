//! Gives the shared library its SONAME: the part of the version up to which programs need not be linked anew, which is
//! the major version, and as long as that is 0 the minor one too.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        let part = |name: &str| std::env::var(format!("CARGO_PKG_VERSION_{name}")).unwrap_or_default();
        let series = if part("MAJOR") == "0" { format!("0.{}", part("MINOR")) } else { part("MAJOR") };
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsublet.so.{series}");
    }
}
