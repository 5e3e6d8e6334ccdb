//! Registers and unregisters husk with every engine, in a temporary tree.

use super::*;
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use tempfile::TempDir;

const ENGINES: [Engine; 4] = [Engine::Podman, Engine::Containerd, Engine::Docker, Engine::CriO];

fn registration(engine: Engine, etc: &TempDir) -> Registration {
    let etc = etc.path().to_owned();
    Registration {
        engine,
        etc,
        program: "/usr/bin/husk".into(),
        shim: false,
        default: false,
        systemd_cgroup: false,
    }
}

fn through_shim(engine: Engine, etc: &TempDir, shim: &str) -> Registration {
    Registration { program: shim.into(), shim: true, ..registration(engine, etc) }
}

fn apply(change: Result<FileChange, Error>) {
    change.unwrap().apply().unwrap();
}

/// Returns every file below a directory, with its contents.
fn files(directory: &Path) -> BTreeMap<PathBuf, String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false => BTreeMap::from([(path.clone(), fs::read_to_string(&path).unwrap())]),
        })
        .collect()
}

fn put(etc: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = etc.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn unregister_restores_the_original_file() {
    let documents = [
        "{}",
        "{\n}\n",
        "{\"debug\":true}",
        "{\n    \"debug\": true,\n    \"runtimes\": {\n        \"x\": {\"path\": \"/x\"}\n    }\n}\n",
        "{ \"runtimes\": {\"x\": {}}, \"hosts\": [\"fd://\"] }\n",
        "{\n\t\"default-runtime\": \"runc\"\n}",
    ];
    for (engine, document) in
        ENGINES.into_iter().flat_map(|engine| documents.map(|document| (engine, document)))
    {
        for is_default in [false, true] {
            let etc = TempDir::new().unwrap();
            put(&etc, "docker/daemon.json", document);
            put(&etc, "containerd/config.toml", "version = 3\n[grpc]\naddress = \"x\"");
            put(&etc, "containers/containers.conf.d/other.conf", "[engine]\n");
            let before = files(etc.path());
            let with = Registration { default: is_default, ..registration(engine, &etc) };
            let change = with.change();
            if engine == Engine::Docker && is_default && document.contains("runc") {
                assert!(change.unwrap_err().to_string().contains("default-runtime is \"runc\""));
                continue;
            }
            apply(change);
            assert_ne!(files(etc.path()), before);
            let again = with.change().unwrap();
            assert_eq!(again.before, again.after);
            // The last request wins.
            apply(registration(engine, &etc).change());
            let text: String = files(etc.path()).into_values().collect();
            assert!(
                !text.contains("default_runtime") && !text.contains("\"default-runtime\": \"husk\""),
                "{text}"
            );
            apply(with.undoing());
            let mut after = files(etc.path());
            if engine == Engine::Docker && document.trim().len() <= 3 {
                // An empty configuration file is removed.
                after.insert(etc.path().join("docker/daemon.json"), document.to_owned());
            }
            assert_eq!(after, before, "{engine:?}");
            apply(with.undoing());
        }
    }
}

#[test]
fn unregister_removes_files_that_register_created() {
    for engine in ENGINES {
        let etc = TempDir::new().unwrap();
        apply(registration(engine, &etc).undoing());
        apply(registration(engine, &etc).change());
        assert!(!files(etc.path()).is_empty());
        apply(registration(engine, &etc).undoing());
        assert_eq!(files(etc.path()), BTreeMap::new(), "{engine:?}");
    }
}

#[test]
fn docker_keeps_its_keys_and_new_ones_are_valid_json() {
    let etc = TempDir::new().unwrap();
    let path = put(&etc, "docker/daemon.json", "{ \"runtimes\": {\"x\": {}}, \"hosts\": [] }");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    apply(Registration { default: true, ..registration(Engine::Docker, &etc) }.change());
    let found: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let wanted = serde_json::json!({
        "default-runtime": "husk",
        "runtimes": { "x": {}, "husk": { "path": "/usr/bin/husk" } },
        "hosts": []
    });
    assert_eq!(found, wanted);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    put(&etc, "docker/daemon.json", "[]");
    assert!(registration(Engine::Docker, &etc).change().is_err());
}

#[test]
fn docker_finds_the_shim_by_name_or_by_path() {
    let elsewhere = "/opt/husk/containerd-shim-husk-v1";
    for (shim, wanted) in [
        ("/usr/local/bin/containerd-shim-husk-v1", "io.containerd.husk.v1"),
        ("/usr/bin/containerd-shim-husk-v1", "io.containerd.husk.v1"),
        ("/usr/bin/containerd-shim-other", "/usr/bin/containerd-shim-other"),
        (elsewhere, elsewhere),
    ] {
        let etc = TempDir::new().unwrap();
        // Replaces the way through the shim for runc.
        apply(registration(Engine::Docker, &etc).change());
        let change = through_shim(Engine::Docker, &etc, shim).change().unwrap();
        let found: serde_json::Value = serde_json::from_str(change.after.as_ref().unwrap()).unwrap();
        assert_eq!(found, serde_json::json!({ "runtimes": { "husk": { "runtimeType": wanted } } }));
        change.apply().unwrap();
        apply(registration(Engine::Docker, &etc).undoing());
        assert!(!change.path.exists());
    }
}

#[test]
fn containerds_entry_for_the_shim_has_no_binary() {
    let shim = "/usr/bin/containerd-shim-husk-v1";
    for (version, plugin) in [(2, "io.containerd.grpc.v1.cri"), (3, "io.containerd.cri.v1.runtime")] {
        for (systemd_cgroup, default) in [(false, false), (true, true)] {
            let etc = TempDir::new().unwrap();
            let before = format!("version = {version}\n[grpc]\n");
            let path = put(&etc, "containerd/config.toml", &before);
            apply(registration(Engine::Containerd, &etc).change());
            let with = through_shim(Engine::Containerd, &etc, shim);
            apply(Registration { default, systemd_cgroup, ..with }.change());
            let written: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
            let containerd = &written["plugins"][plugin]["containerd"];
            let mut wanted = toml::Table::new();
            wanted.insert("runtime_type".into(), "io.containerd.runc.v2".into());
            wanted.insert("runtime_path".into(), shim.into());
            if systemd_cgroup {
                let options = [("SystemdCgroup".to_owned(), true.into())];
                wanted.insert("options".into(), toml::Table::from_iter(options).into());
            }
            assert_eq!(containerd["runtimes"]["husk"].as_table(), Some(&wanted));
            let runc = &containerd["runtimes"]["runc"]["runtime_type"];
            assert_eq!(runc.as_str(), Some("io.containerd.runc.v2"));
            let default = default.then_some("husk");
            assert_eq!(containerd.get("default_runtime_name").and_then(|name| name.as_str()), default);
            apply(registration(Engine::Containerd, &etc).undoing());
            assert_eq!(fs::read_to_string(&path).unwrap(), before);
        }
    }
}

#[test]
fn engines_without_shims_refuse_the_shim() {
    let etc = TempDir::new().unwrap();
    for engine in [Engine::Podman, Engine::CriO] {
        let error = through_shim(engine, &etc, "/usr/bin/containerd-shim-husk-v1").change().unwrap_err();
        assert!(error.to_string().contains("only containerd and docker do"), "{error}");
    }
}

#[test]
fn symlinked_file_stays_a_symlink() {
    let etc = TempDir::new().unwrap();
    let real = put(&etc, "real.json", "{\"debug\": true}");
    fs::create_dir(etc.path().join("docker")).unwrap();
    let link = etc.path().join("docker/daemon.json");
    symlink(&real, &link).unwrap();
    apply(registration(Engine::Docker, &etc).change());
    assert!(link.is_symlink());
    assert!(fs::read_to_string(real).unwrap().contains("husk"));
}

#[test]
fn containerds_runc_entry_is_kept() {
    let runc = "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]";
    let cni = "[plugins.\"io.containerd.grpc.v1.cri\".cni]";
    for (listed, added) in [(cni, 1), (runc, 0), (&runc.replace('"', "'"), 0)] {
        let etc = TempDir::new().unwrap();
        let path = put(&etc, "containerd/config.toml", &format!("version = 2\n{listed}\n"));
        apply(registration(Engine::Containerd, &etc).change());
        let written = fs::read_to_string(path).unwrap();
        assert_eq!(written.replacen(listed, "", 1).matches(runc).count(), added, "{written}");
    }
}

#[test]
fn containerd_entry_follows_the_version_of_the_file() {
    let etc = TempDir::new().unwrap();
    let path = etc.path().join("containerd/config.toml");
    let with =
        || Registration { default: true, systemd_cgroup: true, ..registration(Engine::Containerd, &etc) };
    apply(with().change());
    let written = fs::read_to_string(&path).unwrap();
    assert!(
        written.contains("[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.husk]"),
        "{written}"
    );
    put(&etc, "containerd/config.toml", "version = 3 # new\n");
    apply(with().change());
    let written = fs::read_to_string(&path).unwrap();
    assert!(
        written.starts_with("version = 3 # new\n") && written.contains("SystemdCgroup = true"),
        "{written}"
    );
    assert!(written.contains("[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.husk.options]"));
    assert!(written.contains("default_runtime_name = \"husk\""), "{written}");
    let inline = "version = 3\nplugins = {'io.containerd.cri.v1.runtime' = {containerd = {}}}\n";
    for wrong in ["", "version = 1\n", "[x]\nversion = 2\n", inline] {
        put(&etc, "containerd/config.toml", wrong);
        assert!(with().change().is_err(), "{wrong}");
    }
    put(&etc, "containerd/config.toml", "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\n");
    apply(registration(Engine::Containerd, &etc).change());
}

/// The output of `containerd config default`, reduced to what matters for its form. Version 2 indents and uses double
/// quotes, version 3 single quotes.
const DEFAULTS: [&str; 2] = [
    r#"disabled_plugins = []
oom_score = 0
version = 2

[plugins]

  [plugins."io.containerd.grpc.v1.cri"]
    enable_selinux = false

    [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "runc"
      snapshotter = "overlayfs"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes]

        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
          runtime_type = "io.containerd.runc.v2"

          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
            BinaryName = ""
            SystemdCgroup = true

[timeouts]
  "io.containerd.timeout.shim.load" = "5s"
"#,
    r#"version = 3
root = '/var/lib/containerd'

[plugins]
  [plugins.'io.containerd.cri.v1.runtime']
    enable_selinux = false

    [plugins.'io.containerd.cri.v1.runtime'.containerd]
      ignore_blockio_not_enabled_errors = false

      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes]
        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
          runtime_type = 'io.containerd.runc.v2'

          [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
            BinaryName = ''
            SystemdCgroup = true
"#,
];

#[test]
fn default_configuration_of_containerd_is_understood() {
    for (text, plugin) in
        DEFAULTS.into_iter().zip(["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"])
    {
        let etc = TempDir::new().unwrap();
        let path = put(&etc, "containerd/config.toml", text);
        let with = Registration { default: true, ..registration(Engine::Containerd, &etc) };
        apply(with.change());
        let written: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        let containerd = &written["plugins"][plugin]["containerd"];
        assert_eq!(containerd["default_runtime_name"].as_str(), Some("husk"));
        let options = &containerd["runtimes"]["husk"]["options"];
        assert_eq!(options["BinaryName"].as_str(), Some("/usr/bin/husk"));
        // The value comes from runc's options.
        assert_eq!(options["SystemdCgroup"].as_bool(), Some(true));
        assert_eq!(with.change().unwrap().after, Some(fs::read_to_string(&path).unwrap()));
        apply(with.undoing());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn broken_toml_is_reported_with_its_line() {
    let etc = TempDir::new().unwrap();
    put(&etc, "containerd/config.toml", "version = 2\n[plugins\n");
    let error = registration(Engine::Containerd, &etc).change().unwrap_err().to_string();
    assert!(error.contains("config.toml, line 2: invalid TOML"), "{error}");
}

#[test]
fn unregister_keeps_directories() {
    for engine in ENGINES {
        let etc = TempDir::new().unwrap();
        let path = registration(engine, &etc).change().unwrap().path;
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        apply(registration(engine, &etc).change());
        apply(registration(engine, &etc).undoing());
        assert!(path.parent().unwrap().is_dir() && !path.exists(), "{engine:?}");
    }
}
