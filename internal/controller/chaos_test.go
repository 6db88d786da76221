package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// chaos changes a world at random: its nodes, its topology, the orders of its operators,
// and what its workers report.
type chaos struct {
	*world
	*rand.Rand
	nodes int // that ever existed
	many  int // workers of a role, at most

	encode bool // there are encode workers, too
	pools  bool // there are pools and attached servers, too
}

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{world: newWorld(t, 1, 1), Rand: rand.New(rand.NewPCG(seed, 11))}
	nodes := 1 + c.IntN(4)
	c.many = 5
	if seed%4 > 1 {
		nodes, c.many = 12, 20
	}
	for range nodes {
		c.join()
	}
	return c
}

func pick[T any](c *chaos, of ...T) T { return of[c.IntN(len(of))] }

// join adds a node.
func (c *chaos) join() {
	c.nodes++
	n := cluster.Node{ID: fmt.Sprintf("id-%d", c.IntN(1000)*1000+c.nodes), Name: fmt.Sprintf("n%d", c.nodes%7)} // names may repeat
	for i := range c.IntN(4) {
		n.Devices = append(n.Devices, cluster.Device{
			ID: fmt.Sprintf("%s:%d", pick(c, "cpu", "gpu"), i), Cores: c.IntN(5), MemoryBytes: pick[int64](c, 0, 4, 8, 16),
		})
	}
	n.Roles = pick(c, nil, nil, []cluster.Role{cluster.RolePrefill}, []cluster.Role{cluster.RoleDecode})
	if c.encode && c.IntN(3) == 0 {
		n.Roles = []cluster.Role{cluster.RoleEncode}
	}
	c.Nodes = append(c.Nodes, n)
}

// one returns a random assignment, or nil.
func (c *chaos) one() *cluster.Assignment {
	if len(c.Assignments) == 0 {
		return nil
	}
	return &c.Assignments[c.IntN(len(c.Assignments))]
}

// happen makes one thing happen.
func (c *chaos) happen() {
	t, a := c.Topology, c.one()
	if c.pools && c.IntN(3) == 0 {
		c.repool()
		return
	}
	switch c.IntN(14) {
	case 0, 1:
		t.Prefill, t.Decode = c.IntN(c.many), 1+c.IntN(c.many)
		if c.encode {
			t.Encode = c.IntN(c.many)
		}
	case 2:
		c.join()
	case 3:
		if len(c.Nodes) > 0 {
			i := c.IntN(len(c.Nodes))
			c.Nodes = slices.Delete(c.Nodes, i, i+1)
		}
	case 4:
		pick(c, &t.Engine, &t.DecodeSpec.Engine, &t.PrefillSpec.Engine).KVBlocks = c.IntN(4)
	case 5:
		t.Engine.Device = pick(c, "", "", "cpu", "gpu", "cpu:0,gpu:1")
	case 6:
		t.Placement = pick(c, cluster.PlacementSpread, cluster.PlacementSpread, cluster.PlacementPack)
	case 7:
		t.Restarts++
	case 8:
		c.Cordons = map[string]cluster.Cordon{}
		for _, n := range c.Nodes {
			if c.IntN(4) == 0 {
				c.Cordons[n.ID] = cluster.Cordon{Node: n.ID, Force: c.IntN(2) == 0}
			}
		}
	case 9:
		c.Settling = map[string]bool{}
		for _, n := range c.Nodes {
			c.Settling[n.ID] = c.IntN(3) == 0
		}
	case 10:
		t.Generation++
		if a != nil {
			t.Flip = cluster.Flip{Worker: a.Name, Role: pick(c, cluster.Roles...), Generation: t.Generation - int64(c.IntN(2))}
		}
	case 11:
		t.Model.Name = pick(c, "tiny", "tiny", "other")
	default:
		if a != nil {
			a.Desire = pick(c, cluster.DesireRun, cluster.DesireDrain, cluster.DesireRemove)
			a.Replace, a.Sleep = c.IntN(3) == 0, 0
			if a.Desire == cluster.DesireDrain {
				a.Sleep = pick(c, 0, 0, cluster.SleepLight, cluster.SleepDeep)
			}
		}
	}
}

// repool changes a pool beside the main one, or the servers that are attached.
func (c *chaos) repool() {
	t := c.Topology
	if name := pick(c, "a", "b", ""); name != "" {
		pool := t.In(name)
		pool.Model.Name, pool.Model.Path = pick(c, "tiny", "small-"+name), "/models/tiny"
		pool.Prefill, pool.Decode = c.IntN(3), c.IntN(3)
		pool.Engine.KVBlocks, pool.Placement = c.IntN(3), pick(c, cluster.PlacementSpread, cluster.PlacementPack)
		t.Put(name, pool)
		return
	}
	t.Attached = nil
	for i := range c.IntN(4) {
		t.Attached = append(t.Attached, attached(fmt.Sprintf("http://gpu-%d:8000", i), pick(c, cluster.RolePrefill, cluster.RoleDecode), pick(c, "", "", "n1")))
	}
}

// report has some workers say something: mostly what their assignments ask.
func (c *chaos) report() {
	for _, a := range c.Assignments {
		st := c.Status[a.Name]
		switch c.IntN(8) {
		case 0:
		case 1:
			st.State = pick(c, cluster.StateFailed, cluster.StateLoading, cluster.StateDegraded, cluster.StateStopped, cluster.StateReady)
			st.Reason, st.NoMemory, st.FitsAlone = "chaos", c.IntN(2) == 0, c.IntN(2) == 0
			st.Generation = a.Generation - int64(c.IntN(2))
		case 2:
			st.Declined = cluster.Declined{Generation: a.Generation, Why: "declined"}
		case 3:
			delete(c.Status, a.Name)
			continue
		default:
			st.Generation, st.State = a.Generation, cluster.StateReady
			st.NoMemory = false
			switch a.Desire {
			case cluster.DesireDrain:
				st.State = pick(c, cluster.StateDrained, cluster.StateDraining)
				if a.Sleep > 0 && c.IntN(2) == 0 {
					st.State, st.Sleep = cluster.StateSleeping, a.Sleep
				}
			case cluster.DesireRemove:
				st.State = pick(c, cluster.StateStopped, cluster.StateDraining)
			}
			if c.IntN(2) == 0 {
				st.MemoryBytes, st.BlockBytes, st.Stats.BlockSize = int64(c.IntN(4)), int64(c.IntN(3)), 16
			}
		}
		st.Name = a.Name
		c.Status[a.Name] = st
	}
}

// snapshot copies the view, so that a plan cannot change it unseen.
func (c *chaos) snapshot() View {
	v := c.View
	topology := *c.Topology
	v.Topology, v.Nodes, v.Assignments = &topology, slices.Clone(v.Nodes), slices.Clone(v.Assignments)
	v.Status, v.Cordons, v.Settling = maps.Clone(v.Status), maps.Clone(v.Cordons), maps.Clone(v.Settling)
	c.Shuffle(len(v.Nodes), func(i, j int) { v.Nodes[i], v.Nodes[j] = v.Nodes[j], v.Nodes[i] })
	c.Shuffle(len(v.Assignments), func(i, j int) { v.Assignments[i], v.Assignments[j] = v.Assignments[j], v.Assignments[i] })
	return v
}
