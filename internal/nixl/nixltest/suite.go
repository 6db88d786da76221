package nixltest

import (
	"testing"

	"go.uber.org/goleak"
)

// Run runs the suite over the transports of newEnv, and checks that nothing is
// left running after each test.
func Run(t *testing.T, newEnv func(t testing.TB) Env) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Env)
	}{
		{"write and read random lists", testRandomLists},
		{"select blocks by index", testIndices},
		{"10,000 regions", testManyRegions},
		{"re-post", testRepost},
		{"one notification per post", testNotifyPerPost},
		{"many goroutines on one agent", testConcurrent},
		{"notifications keep their order", testNotifyOrder},
		{"empty notifications", testNotifyEmpty},
		{"notifications wait for the consumer", testNotifyBackPressure},
		{"notification follows the data", testNotifyAfterData},
		{"refusals", testRefusals},
		{"tickets expire", testExpiry},
		{"a revoked ticket fences writes", testRevokeWrite},
		{"a revoked ticket fences reads", testRevokeRead},
		{"revoking ends running transfers", testRevokeRunning},
		{"release cancels", testRelease},
		{"deadline cancels", testDeadline},
		{"invalidate", testInvalidate},
		{"rest", testRest},
		{"leave in traffic", testLeave},
		{"close in traffic", testCloseInTraffic},
		{"peer closes", testPeerCloses},
		{"restart under the same name", testRestart},
		{"deregister", testDeregister},
		{"adversarial tickets", testAdversary},
		{"memory of devices", testStaging},
		{"memory of devices, little staging memory", testStagingShort},
		{"transfers of device memory end early", testStagingEnds},
		{"traffic", testTraffic},
		{"self-test", testSelfTest},
		{"close while busy", testCloseBusy},
		{"both directions", testBothDirections},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() {
				if err := goleak.Find(before); err != nil {
					t.Error(err)
				}
			})
			c.run(t, newEnv(t))
		})
	}
}
