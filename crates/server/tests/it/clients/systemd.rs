//! The unit for systemd in `deploy/systemd/`.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::clients::tools;

/// The lines of a unit that begin with this key.
fn lines<'a>(unit: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    unit.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix('='))
}

#[test]
fn the_server_understands_what_the_unit_tells_it() {
    let unit = tools::deployed("systemd/tollgate.service");
    let starts: Vec<_> = lines(&unit, "ExecStart").collect();
    let [start] = starts[..] else { panic!("{starts:?}") };
    let args = start.strip_prefix("/usr/local/bin/tollgate ").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args.split(' ')).arg("--print-config").env_clear();
    for line in lines(&unit, "Environment") {
        let (name, value) = line.split_once('=').unwrap();
        command.env(name, value);
    }
    let ran = command.current_dir(TempDir::new().unwrap().path()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let settings = String::from_utf8(ran.stdout).unwrap();
    for told in ["/etc/tollgate/rules", "/var/lib/tollgate"] {
        assert!(settings.contains(told), "{settings}");
    }
}

/// Not every machine has systemd, and one that has not won't run the unit.
#[test]
fn systemd_understands_the_unit() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("there is no systemd-analyze here: the unit is not checked");
        return;
    }
    let unit = tools::deployed("systemd/tollgate.service");
    let home = TempDir::new().unwrap();
    let path = home.path().join("tollgate.service");
    fs::write(&path, tools::replaced(&unit, "/usr/local/bin/tollgate", env!("CARGO_BIN_EXE_tollgate"))).unwrap();
    let ran = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    let about_it: Vec<_> = said.lines().filter(|line| line.contains("tollgate.service")).collect();
    assert!(ran.status.success() && about_it.is_empty(), "{said}");
}
