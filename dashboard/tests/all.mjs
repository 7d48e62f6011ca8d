// Browser tests of the dashboard against real servers. `crates/server/tests/dashboard.rs` starts both servers and runs this; the
// environment has their addresses.

import "./pages.mjs";
import "./live.mjs";
import "./rules.mjs";
import "./caller.mjs";
import "./login.mjs";
import "./look.mjs";
