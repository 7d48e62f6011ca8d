// The dashboard of a real server in a real browser. `crates/server/tests/dashboard.rs` starts both servers and runs this; the
// environment says where they are.

import "./pages.mjs";
import "./live.mjs";
import "./rules.mjs";
import "./caller.mjs";
import "./login.mjs";
import "./look.mjs";
