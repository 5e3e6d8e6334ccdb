//! The tools that a sandbox shows by itself, and the files that it never shows this way. This file is data.
//!
//! To add a tool, add a row: the variables that name its directory, the places it uses without them, and the parts of
//! that directory. List parts that programs write to as [`Access::Cache`]. Never list a part that may hold credentials.

/// How a program uses a part of a tool's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads it: programs and libraries.
    Install,
    /// Also writes to it: downloads and the results of builds.
    Cache,
    /// Builds in it: the project. No tool has such a part.
    Build,
}

/// The directory that a default path is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Home,
    /// `XDG_CACHE_HOME`, or `~/.cache`.
    Cache,
    /// `XDG_DATA_HOME`, or `~/.local/share`.
    Data,
}

/// A tool with a directory of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    /// Variables that name the directory. The first that is set counts; it may hold several directories.
    pub(crate) variables: &'static [&'static str],
    /// Directories that are used if no variable is set.
    pub(crate) defaults: &'static [(Base, &'static str)],
    /// Paths in the directory. An empty path is the whole directory.
    pub(crate) parts: &'static [(&'static str, Access)],
}

const ALL: &[(&str, Access)] = &[("", Access::Install)];
const CACHE: &[(&str, Access)] = &[("", Access::Cache)];

const fn tool(
    name: &'static str,
    variables: &'static [&'static str],
    defaults: &'static [(Base, &'static str)],
    parts: &'static [(&'static str, Access)],
) -> Tool {
    Tool { name, variables, defaults, parts }
}

use Access::{Cache as Written, Install as Read};
use Base::{Cache, Data, Home};

#[rustfmt::skip]
pub(crate) const TOOLS: &[Tool] = &[
    // Rust
    tool("rustup", &["RUSTUP_HOME"], &[(Home, ".rustup")], ALL),
    tool("cargo", &["CARGO_HOME"], &[(Home, ".cargo")],
        &[("bin", Read), ("config.toml", Read), ("config", Read), ("registry", Written), ("git", Written)]),
    // Python
    tool("pyenv", &["PYENV_ROOT"], &[(Home, ".pyenv")], ALL),
    tool("python venv", &["VIRTUAL_ENV"], &[], ALL),
    tool("conda", &["CONDA_PREFIX"], &[], ALL),
    tool("user packages", &["PYTHONUSERBASE"], &[(Home, ".local")], &[("bin", Read), ("lib", Read)]),
    tool("pipx", &["PIPX_HOME"], &[(Data, "pipx"), (Home, ".local/pipx")], ALL),
    tool("pip", &["PIP_CACHE_DIR"], &[(Cache, "pip")], CACHE),
    tool("uv", &["UV_CACHE_DIR"], &[(Cache, "uv")], CACHE),
    tool("uv python", &["UV_PYTHON_INSTALL_DIR"], &[(Data, "uv/python")], ALL),
    tool("uv tools", &["UV_TOOL_DIR"], &[(Data, "uv/tools")], ALL),
    // Go
    tool("go", &["GOROOT"], &[(Home, "sdk")], ALL),
    tool("go packages", &["GOPATH"], &[(Home, "go")], &[("bin", Read), ("src", Read), ("pkg", Written)]),
    tool("go modules", &["GOMODCACHE"], &[], CACHE),
    tool("go cache", &["GOCACHE"], &[(Cache, "go-build")], CACHE),
    // JavaScript
    tool("nvm", &["NVM_DIR"], &[(Home, ".nvm")], ALL),
    tool("fnm", &["FNM_DIR"], &[(Data, "fnm"), (Home, ".fnm")], ALL),
    tool("volta", &["VOLTA_HOME"], &[(Home, ".volta")], ALL),
    tool("n", &["N_PREFIX"], &[], ALL),
    tool("npm", &["npm_config_cache", "NPM_CONFIG_CACHE"], &[(Home, ".npm")], &[("_cacache", Written)]),
    tool("corepack", &["COREPACK_HOME"], &[(Cache, "node/corepack")], ALL),
    tool("pnpm", &["PNPM_HOME"], &[(Data, "pnpm")], &[("", Read), ("store", Written)]),
    tool("yarn", &["YARN_CACHE_FOLDER"], &[(Cache, "yarn")], CACHE),
    tool("yarn berry", &["YARN_GLOBAL_FOLDER"], &[(Home, ".yarn/berry")], CACHE),
    tool("deno", &["DENO_INSTALL"], &[(Home, ".deno")], &[("bin", Read)]),
    tool("deno cache", &["DENO_DIR"], &[(Cache, "deno")], CACHE),
    tool("bun", &["BUN_INSTALL"], &[(Home, ".bun")], &[("bin", Read), ("install", Written)]),
    // Java
    tool("java", &["JAVA_HOME"], &[], ALL),
    tool("sdkman", &["SDKMAN_DIR"], &[(Home, ".sdkman")], &[("bin", Read), ("candidates", Read)]),
    tool("maven", &[], &[(Home, ".m2")], &[("repository", Written), ("wrapper", Read)]),
    tool("gradle", &["GRADLE_USER_HOME"], &[(Home, ".gradle")],
        &[("caches", Written), ("wrapper", Written), ("native", Written), ("jdks", Read)]),
    // Ruby
    tool("rbenv", &["RBENV_ROOT"], &[(Home, ".rbenv")], ALL),
    tool("gem", &["GEM_HOME"], &[], ALL),
    tool("gem packages", &[], &[(Home, ".gem/ruby"), (Data, "gem/ruby")], ALL),
    // Several languages
    tool("asdf", &["ASDF_DATA_DIR"], &[(Home, ".asdf")], ALL),
    tool("mise", &["MISE_DATA_DIR"], &[(Data, "mise")], &[("installs", Read), ("shims", Read)]),
    tool("ccache", &["CCACHE_DIR"], &[(Home, ".ccache"), (Cache, "ccache")], CACHE),
];

/// Variables that the tools need besides those that name a directory.
#[rustfmt::skip]
const VARIABLES: &[&str] = &[
    "CONDA_DEFAULT_ENV", "CONDA_EXE", "CONDA_PYTHON_EXE", "FNM_MULTISHELL_PATH", "GEM_PATH", "GOFLAGS", "GOTOOLCHAIN",
    "NODE_PATH", "NVM_BIN", "PYENV_VERSION", "PYTHONPATH", "RBENV_VERSION",
];

/// Programs, and a variable with a value that they get. In a new home directory, npm would look for its own updates each
/// time, which takes longer than a short test.
pub(crate) const SETTINGS: &[(&[&str], &str, &str)] =
    &[(&["npm", "npx"], "npm_config_update_notifier", "false")];

/// Returns whether a variable belongs to a tool and is passed on.
pub(crate) fn is_variable(name: &[u8]) -> bool {
    let of_tools = TOOLS.iter().flat_map(|tool| tool.variables);
    of_tools.chain(VARIABLES).any(|known| known.as_bytes() == name)
}

/// Paths in the home directory that are never shown for a tool, and neither is a directory that contains one.
#[rustfmt::skip]
pub(crate) const SECRETS: &[&str] = &[
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".netrc", ".git-credentials", ".pgpass",
    ".my.cnf", ".password-store", ".mozilla", ".thunderbird", ".terraform.d", ".vault-token",
    ".cargo/credentials", ".cargo/credentials.toml", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".gem/credentials",
    ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".gradle/init.d", ".ivy2/.credentials",
    ".local/share/keyrings", ".bash_history", ".zsh_history",
];

/// Programs that build. They may write to the project, and their changes are discarded.
#[rustfmt::skip]
const BUILDS: &[&str] = &[
    "bazel", "bun", "bundle", "cargo", "cmake", "ctest", "deno", "dotnet", "go", "gradle", "gradlew", "jest", "just",
    "make", "gmake", "meson", "mocha", "mvn", "mvnw", "ninja", "nox", "npm", "npx", "pdm", "pnpm", "poetry", "py.test",
    "pytest", "rake", "tox", "uv", "vitest", "yarn",
];

/// Programs that run other programs, as scripts do.
#[rustfmt::skip]
const RUNS: &[&str] = &[
    "bash", "busybox", "dash", "env", "fish", "ksh", "nice", "nohup", "sh", "stdbuf", "time", "timeout", "xargs",
    "xvfb-run", "zsh",
];

/// Interpreters, whose names may end with a version.
const INTERPRETERS: &[&str] = &["lua", "node", "perl", "python", "ruby"];

/// Returns whether a program is known to run others.
pub(crate) fn is_runner(name: &[u8]) -> bool {
    RUNS.iter().any(|known| known.as_bytes() == name)
        || INTERPRETERS.iter().any(|known| name.starts_with(known.as_bytes()))
}

/// Returns whether a program is known to build.
pub(crate) fn is_build(name: &[u8]) -> bool {
    BUILDS.iter().any(|known| known.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::{Base, SECRETS, TOOLS, is_variable};
    use std::path::Path;

    #[test]
    fn rows_are_complete_and_relative() {
        for tool in TOOLS {
            assert!(!tool.variables.is_empty() || !tool.defaults.is_empty(), "{} has no place", tool.name);
            assert!(!tool.parts.is_empty(), "{} shows nothing", tool.name);
            let paths =
                tool.defaults.iter().map(|(_, path)| path).chain(tool.parts.iter().map(|(part, _)| part));
            for path in paths {
                assert!(!path.starts_with('/') && !path.contains(".."), "{} {path}", tool.name);
            }
        }
        let mut names: Vec<_> = TOOLS.iter().map(|tool| tool.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TOOLS.len(), "a name is used twice");
    }

    #[test]
    fn no_part_at_its_default_place_is_or_contains_a_secret() {
        for tool in TOOLS {
            for (base, place) in tool.defaults {
                let base = match base {
                    Base::Home => "",
                    Base::Cache => ".cache",
                    Base::Data => ".local/share",
                };
                for (part, _) in tool.parts {
                    let path = Path::new(base).join(place).join(part);
                    let meets =
                        |secret: &&&str| path.starts_with(secret) || Path::new(secret).starts_with(&path);
                    assert_eq!(SECRETS.iter().find(meets), None, "{} {}", tool.name, path.display());
                }
            }
        }
    }

    #[test]
    fn variables_of_tools_hold_no_secrets() {
        assert!(is_variable(b"GOCACHE") && is_variable(b"NVM_DIR") && is_variable(b"GOFLAGS"));
        assert!(!is_variable(b"NPM_TOKEN") && !is_variable(b"GOPROXY") && !is_variable(b"UV_INDEX_URL"));
        for secret in ["TOKEN", "PASSWORD", "SECRET", "_KEY"] {
            assert!(TOOLS.iter().flat_map(|tool| tool.variables).all(|name| !name.contains(secret)));
        }
    }
}
