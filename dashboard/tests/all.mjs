// Browser tests of the dashboard against real servers. `crates/server/tests/end_to_end/dashboard.rs` starts both servers and runs this; the
// environment has their addresses.

import "./pages.mjs";
import "./live.mjs";
import "./rules.mjs";
import "./rule.mjs";
import "./caller.mjs";
import "./controls.mjs";
import "./tenants.mjs";
import "./login.mjs";
import "./look.mjs";
