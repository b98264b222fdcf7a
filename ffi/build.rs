//! Gives the shared library its SONAME: the part of the version up to which programs need not be linked anew.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsublet.so.0");
    }
}
