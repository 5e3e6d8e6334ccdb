//! Finds out whether a failed build tool lacked something that it could not download without a network.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Returns the command that downloads what is missing.
pub(crate) fn missing(program: &[OsString]) -> Option<&'static str> {
    let name = Path::new(program.first()?).file_name()?.to_str()?;
    let here = env::current_dir().ok()?;
    let nearest = |file: &str| here.ancestors().map(|above| above.join(file)).find(|file| file.is_file());
    let home = |variable: &str, usual: &str| {
        let named = env::var_os(variable).filter(|named| !named.is_empty()).map(PathBuf::from);
        named.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(usual)))
    };
    match name {
        "cargo" => {
            let cache = home("CARGO_HOME", ".cargo")?.join("registry/cache");
            let lacks = match nearest("Cargo.lock").and_then(|lock| fs::read_to_string(lock).ok()) {
                Some(lock) => {
                    let registries = fs::read_dir(cache).into_iter().flatten().flatten();
                    let registries: Vec<_> = registries.map(|registry| registry.path()).collect();
                    let is_there = |krate: &String| registries.iter().any(|at| at.join(krate).is_file());
                    !crates(&lock).iter().all(is_there)
                }
                None => nearest("Cargo.toml").is_some(),
            };
            lacks.then_some("cargo fetch")
        }
        "go" => {
            let packages = home("GOPATH", "go")?.join("pkg/mod");
            let named = env::var_os("GOMODCACHE").filter(|named| !named.is_empty()).map(PathBuf::from);
            let cache = named.unwrap_or(packages).join("cache/download");
            let sums = fs::read_to_string(nearest("go.sum")?).ok()?;
            let lacks = modules(&sums).iter().any(|module| !cache.join(module).is_file());
            lacks.then_some("go mod download")
        }
        "npm" | "npx" => {
            let package = nearest("package.json")?;
            (!package.with_file_name("node_modules").is_dir()).then_some("npm ci")
        }
        _ => None,
    }
}

/// Returns the names of the files that cargo downloads for a lock file.
fn crates(lock: &str) -> Vec<String> {
    let value = |package: &str, key: &str| {
        let mut lines = package.lines().filter_map(|line| line.split_once(" = "));
        lines.find(|(name, _)| *name == key).map(|(_, value)| value.trim_matches('"').to_owned())
    };
    let of_package = |package: &str| {
        value(package, "source").filter(|source| source.starts_with("registry+"))?;
        Some(format!("{}-{}.crate", value(package, "name")?, value(package, "version")?))
    };
    lock.split("[[package]]").filter_map(of_package).collect()
}

/// Returns the files below go's cache of downloads that a `go.sum` names. In their paths, `!` and a small letter stand
/// for a capital one (golang.org/x/mod/module, `EscapePath`).
fn modules(sums: &str) -> Vec<String> {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let (module, version) = words.next().zip(words.next())?;
        let path = format!("{module}/@v/{version}.zip");
        let escape = |char: char| match char.is_ascii_uppercase() {
            true => vec!['!', char.to_ascii_lowercase()],
            false => vec![char],
        };
        (!version.ends_with("/go.mod")).then(|| path.chars().flat_map(escape).collect())
    };
    sums.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::{crates, modules};

    #[test]
    fn downloads_of_lock_files_are_named() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry+https://x\"\n\n\
                    [[package]]\nname = \"here\"\nversion = \"0.1.0\"\n";
        assert_eq!(crates(lock), ["a-1.0.0.crate"]);
        let sums =
            "github.com/BurntSushi/toml v1.0.0 h1:x=\ngithub.com/BurntSushi/toml v1.0.0/go.mod h1:y=\n";
        assert_eq!(modules(sums), ["github.com/!burnt!sushi/toml/@v/v1.0.0.zip"]);
    }
}
