// Package patience says how long tests wait for what must happen, and whether the race
// detector slows them down. Tests alone import it.
package patience

import "time"

// Soon is within what must happen happens, also on a busy machine: a test whose condition
// does not come true by then fails.
const Soon = 20 * time.Second * slowdown
