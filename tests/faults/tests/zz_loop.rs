//! temporary
use viaduct_faults::actor::{self, Fate, Mortal};
use viaduct_faults::node::{Mode, Place};
use viaduct_faults::plan::{self, Role};
use viaduct_faults::session;
#[test]
fn looping() {
    let folder = viaduct_kit::tempdir::TempDir::new("loop");
    let mode = if std::env::var_os("ZDIRECT").is_some() { Mode::Direct } else { Mode::Copy };
    let place = Place { folder: folder.path(), mode };
    let mut nic = place.open();
    for i in 0..20000 {
        let mut actor = actor::start(place, Role::Server, &Fate::Lives);
        std::fs::write("/tmp/zz.pid", format!("{} {} {i}", std::process::id(), actor.pid())).unwrap();
        let r = session::run(&mut nic, place, Role::Client, &plan::whole(mode), &mut Mortal(&mut actor));
        assert!(r.result.is_ok(), "{i} {r:?}");
        actor.finish(std::time::Duration::from_secs(30));
    }
}
