//! PostgreSQL and Redis of the distribution as services. They are installed with the packages `postgresql` and
//! `redis-server`.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::{Seen, need};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Returns the directory of PostgreSQL's programs.
fn postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(Result::ok);
    let mut found: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    found.retain(|path| path.join("initdb").exists() && path.join("postgres").exists());
    found.sort();
    found.pop()
}

/// A project whose tests have PostgreSQL, started from a template.
struct Database {
    place: Project,
    programs: PathBuf,
}

impl Database {
    fn new(programs: PathBuf, keys: &str) -> Self {
        let place = Project::new();
        let template = place.path("here/template");
        // Root's PostgreSQL refuses to run, so it runs as another user of a namespace.
        let initdb = Command::new("unshare")
            .args(["--user", "--map-user=postgres", "--map-group=postgres"])
            .arg(programs.join("initdb"))
            .args(["--pgdata", &template, "--username=postgres", "--auth=trust", "--no-sync"])
            .output();
        Seen(initdb.unwrap()).succeeds();
        let toml = format!(
            "[[service]]\nname = \"db\"\nuser = \"postgres\"\noverlay = [\"template\"]\n\
             command = [\"{}/postgres\", \"-D\", \"{template}\", \"-h\", \"127.0.0.1\", \"-k\", \"\", \"-F\"]\n\
             ready = {{ log = \"ready to accept connections\" }}\n{keys}",
            programs.display()
        );
        fs::write(place.path("here/husk.toml"), toml).unwrap();
        Self { place, programs }
    }

    /// Returns a query of a database as a command of the shell.
    fn query(&self, database: &str, query: &str) -> String {
        format!("{}/psql -h 127.0.0.1 -U postgres -Atc \"{query}\" {database}", self.programs.display())
    }

    /// Runs TAP programs of one line each, and returns their verdicts.
    fn tap(&self, scripts: impl Iterator<Item = String>) -> Vec<String> {
        let mut paths = Vec::new();
        for (number, script) in scripts.enumerate() {
            let path = self.place.path(&format!("here/{number}.t"));
            let text = format!("#!/bin/sh\necho 1..1\n{script} && echo ok || echo not ok\n");
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            paths.push(path);
        }
        let json = self.place.path("lines.json");
        let paths: Vec<_> = paths.iter().map(String::as_str).collect();
        let options = ["--explain", "off", "--json", &json, "--tap", "--each"];
        Seen(self.place.command(&options, &paths).output().unwrap()).succeeds();
        let lines = fs::read_to_string(json).unwrap();
        let line = |line: &str| serde_json::from_str::<Value>(line).unwrap()["verdict"].to_string();
        lines.lines().map(line).collect()
    }
}

#[test]
fn each_of_fifty_tests_has_a_database_server_of_its_own() {
    need!(has_sandboxes(), "needs user namespaces");
    let programs = postgres();
    need!(programs.is_some(), "needs PostgreSQL");
    let database = Database::new(programs.unwrap(), "");
    // The second of two tests on one server could not create the table.
    let script = database.query("postgres", "create table mine (number int)") + " >&2";
    assert_eq!(database.tap((0..50).map(|_| script.clone())), vec!["\"passed\""; 50]);
    let template = fs::read_dir(database.place.path("here/template")).unwrap();
    let names: Vec<_> = template.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name == "postmaster.pid"), "{names:?}");
}

#[test]
fn tests_that_share_a_database_server_create_databases_of_their_own() {
    need!(has_sandboxes(), "needs user namespaces");
    let programs = postgres();
    need!(programs.is_some(), "needs PostgreSQL");
    let database = Database::new(programs.unwrap(), "per = \"binary\"\n");
    let script = |number| {
        let name = format!("db{number}");
        let create = database.query("postgres", &format!("create database {name}"));
        format!("{create} >&2 && {} >&2", database.query(&name, "create table mine (number int)"))
    };
    assert_eq!(database.tap((0..50).map(script)), vec!["\"passed\""; 50]);
}

#[test]
fn redis_is_a_service_beside_postgres() {
    need!(has_sandboxes(), "needs user namespaces");
    let programs = postgres();
    need!(programs.is_some(), "needs PostgreSQL");
    need!(Command::new("redis-server").arg("--version").output().is_ok(), "needs Redis");
    let redis = "[[service]]\nname = \"cache\"\nready = { command = [\"redis-cli\", \"ping\"] }\n\
                 command = [\"redis-server\", \"--save\", \"\", \"--bind\", \"127.0.0.1\"]\n";
    let database = Database::new(programs.unwrap(), redis);
    let select = database.query("postgres", "select 42");
    let script = format!("{select}; redis-cli set a b; redis-cli get a");
    database.place.sh(&["--explain", "off"], &script).prints("42\nOK\nb");
}
