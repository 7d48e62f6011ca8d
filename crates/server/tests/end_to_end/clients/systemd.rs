//! The systemd unit in `deploy/systemd/`.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::clients::deploy;

/// The values of this key in a unit.
fn values<'a>(unit: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    unit.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix('='))
}

#[test]
fn the_server_accepts_the_settings_of_the_unit() {
    let unit = deploy::read("systemd/tollgate.service");
    let starts: Vec<_> = values(&unit, "ExecStart").collect();
    let [start] = starts[..] else { panic!("{starts:?}") };
    let args = start.strip_prefix("/usr/local/bin/tollgate ").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args.split(' ')).arg("--print-config").env_clear();
    for line in values(&unit, "Environment") {
        let (name, value) = line.split_once('=').unwrap();
        command.env(name, value);
    }
    let output = command.current_dir(TempDir::new().unwrap().path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let settings = String::from_utf8(output.stdout).unwrap();
    for path in ["/etc/tollgate/rules", "/var/lib/tollgate"] {
        assert!(settings.contains(path), "{settings}");
    }
}

/// Skipped on machines without systemd.
#[test]
fn systemd_accepts_the_unit() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("skipped: there is no systemd-analyze");
        return;
    }
    let unit = deploy::read("systemd/tollgate.service");
    let home = TempDir::new().unwrap();
    let path = home.path().join("tollgate.service");
    fs::write(&path, deploy::replace(&unit, "/usr/local/bin/tollgate", env!("CARGO_BIN_EXE_tollgate"))).unwrap();
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let warnings: Vec<_> = stderr.lines().filter(|line| line.contains("tollgate.service")).collect();
    assert!(output.status.success() && warnings.is_empty(), "{stderr}");
}
