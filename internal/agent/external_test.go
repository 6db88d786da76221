package agent

import (
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
)

// A command of a topology is a program that anybody runs who may change the topology: a node that
// others reach runs none unless its own configuration says so.
func TestServerCommandsAreAllowed(t *testing.T) {
	for _, tc := range []struct {
		setting, host string
		url           string
		may           bool
	}{
		{config.CommandsAuto, "127.0.0.1", "", true},
		{config.CommandsAuto, "localhost", "", true},
		{config.CommandsAuto, "10.0.0.1", "", false},
		{config.CommandsAuto, "node.example", "", false},
		{config.CommandsAllow, "10.0.0.1", "", true},
		{config.CommandsRefuse, "127.0.0.1", "", false},
		{config.CommandsRefuse, "10.0.0.1", "http://gpu-1:8000", true},
	} {
		a := &Agent{cfg: config.Dynamod{Node: config.Node{AdvertiseHost: tc.host, ServerCommands: tc.setting}}}
		as := cluster.Assignment{Role: cluster.RoleDecode, Model: cluster.ModelSpec{Name: "m"}, Engine: cluster.EngineSpec{Backend: cluster.BackendVLLM}}
		as.Engine.Server.URL = tc.url
		if tc.url == "" {
			as.Engine.Server.Command = "vllm serve m"
		}
		if err := a.admit(as, ""); (err == nil) != tc.may {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
