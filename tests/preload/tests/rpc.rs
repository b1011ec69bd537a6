//! Remote procedure calls (SOVIA, sections 4.4 and 5.4): a service and a client made by rpcgen on libtirpc, unmodified.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use viaduct_kit::effort::{rounds, scaled};
use viaduct_kit::packages::need_program;
use viaduct_kit::watchdog::Watchdog;
use viaduct_preload_tests::Stage;
use viaduct_preload_tests::apps::{Server, free_port, need_file, output, source, upgraded};
use viaduct_preload_tests::compatibility::{Entry, Outcome, note};

use crate::AGENT;

/// Makes `server` and `client` in a folder. None if something is missing here.
fn build(folder: &Path) -> Option<()> {
    let rpcgen = need_program("rpcgen", "rpcsvc-proto")?;
    let gcc = need_program("gcc", "gcc")?;
    let headers = need_file("/usr/include/tirpc", "libtirpc-dev")?;
    for file in ["calls.x", "server.c", "client.c"] {
        fs::copy(source("../../crates/bench/rpc").join(file), folder.join(file)).unwrap();
    }
    for (kind, file) in [("-h", "calls.h"), ("-c", "xdr.c"), ("-l", "stubs.c"), ("-m", "dispatch.c")] {
        output(Command::new(&rpcgen).args(["-C", kind, "-o", file, "calls.x"]).current_dir(folder));
    }
    for (program, part) in [("server", "dispatch.c"), ("client", "stubs.c")] {
        let mut command = Command::new(&gcc);
        command
            .args(["-O1", "-I.", "-o", program, &format!("{program}.c"), part, "xdr.c", "-I"])
            .arg(&headers);
        output(command.arg("-ltirpc").current_dir(folder));
    }
    Some(())
}

#[test]
fn calls_of_every_size_are_answered_with_the_library_at_both_ends_at_one_and_at_none() {
    let _dog = Watchdog::arm(scaled(Duration::from_secs(180)), "remote procedure calls");
    let stage = Stage::new(&AGENT);
    if build(stage.folder()).is_none() {
        return;
    }
    let sizes = ["void", "0", "1", "1000", "4096", "e0", "e7", "e4095", "e4096"];
    for (server, client) in [(false, false), (true, false), (false, true), (true, true)] {
        let port = free_port();
        let mut command = stage.maybe(server, stage.folder().join("server"));
        let _server = Server::start(command.arg(port.to_string()), port);
        for size in sizes {
            // The client checks every answer.
            let mut command = stage.maybe(client, stage.folder().join("client"));
            command.args([&port.to_string(), &rounds(200, 5000).to_string(), size]);
            assert!(output(&mut command).starts_with("result "));
        }
        let count = upgraded(&stage.notes()).len();
        let wanted = if server && client { sizes.len() } else { 0 };
        assert_eq!(count, wanted, "{}", stage.notes());
    }
    note(&Entry {
        program: "SunRPC (rpcgen, libtirpc)",
        with: "a service and a client: void, arguments up to 4 KiB",
        outcome: Outcome::Works,
        upgraded: sizes.len(),
        remark: "",
    });
}
