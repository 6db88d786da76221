package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/store"
)

func (a *Agent) secretPath() string { return cmp.Or(a.cfg.SecretFile, a.cluster.SecretPath()) }

// howToJoin is the advice in errors about a missing or different secret.
const howToJoin = "run \"dynctl credentials --join\" on a machine of the cluster and start this node with dynamod --join TOKEN, or set secret_file"

// takeSecret reads the cluster's secret. The first node of a cluster makes it. A node
// that connects to a server inside a dynamod cannot be the first.
func (a *Agent) takeSecret() (err error) {
	a.secret, err = credentials.Load(a.secretPath())
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !a.cfg.EmbedsEtcd() && a.cfg.Etcd.InDynamod() || a.cfg.NATS.External() && a.cfg.NATS.InDynamod() {
		return fmt.Errorf("%w: %w: %s", err, dial.ErrNoSecret, howToJoin)
	}
	made := credentials.New()
	a.secret, err = credentials.Create(a.secretPath(), made)
	a.secretMade = a.secret == made
	return err
}

// makeCredentials makes the credentials of the servers in this process, if there are any.
func (s *stores) makeCredentials(a *Agent) (err error) {
	if a.cfg.EmbedsEtcd() || !a.cfg.NATS.External() {
		s.credentials, err = embedded.NewCredentials(a.secret, a.serverNames()...)
	}
	return err
}

// claim is the value of [cluster.SecretKey].
type claim struct {
	Fingerprint string `json:"fingerprint"`
}

// errOtherSecret is returned if the other nodes of the cluster have a different secret.
var errOtherSecret = errors.New("the nodes of this cluster have another secret")

var errClaimed = errors.New("claimed already")

// claimSecret makes sure that all nodes of the namespace have the same secret, where the
// store does not enforce that. It replaces a secret that no node uses any more, as
// happens after a new one was made.
func (a *Agent) claimSecret(ctx context.Context) error {
	mine := claim{Fingerprint: a.secret.Fingerprint()}
	_, _, err := store.UpdateJSON(ctx, a.stores.store, cluster.SecretKey(a.cfg.Namespace), func(now claim, exists bool) (claim, error) {
		if !exists {
			return mine, nil
		}
		if now == mine {
			return mine, errClaimed
		}
		others, err := a.strangers(ctx)
		if err == nil && len(others) > 0 {
			err = a.otherSecret(now, others[0])
		}
		return mine, err
	})
	if errors.Is(err, errClaimed) {
		return nil
	}
	if errors.Is(err, errOtherSecret) && a.secretMade {
		// It was never used and would hide the right one.
		err = errors.Join(err, os.Remove(a.secretPath()))
	}
	if err != nil {
		return fmt.Errorf("agree on the cluster's secret: %w", err)
	}
	return nil
}

// confirmSecret checks the claim again once other nodes can see this one. If two nodes
// claimed at the same time, at least the first then sees that it lost the claim.
func (a *Agent) confirmSecret(ctx context.Context) error {
	now, _, err := store.GetJSON[claim](ctx, a.stores.store, cluster.SecretKey(a.cfg.Namespace))
	if err == nil && now.Fingerprint != a.secret.Fingerprint() {
		err = a.otherSecret(now, "another node")
	}
	if err != nil {
		return fmt.Errorf("agree on the cluster's secret: %w", err)
	}
	return nil
}

func (a *Agent) otherSecret(now claim, node string) error {
	return fmt.Errorf("%w: that of %s is %s, the one in %s is %s: %s", errOtherSecret, node, now.Fingerprint, a.secretPath(), a.secret.Fingerprint(), howToJoin)
}

// strangers returns the nodes of this namespace that have a different secret.
func (a *Agent) strangers(ctx context.Context) ([]string, error) {
	kvs, _, err := a.stores.store.List(ctx, cluster.NodePrefix)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, kv := range kvs {
		n, err := store.DecodeJSON[cluster.Node](kv)
		if err == nil && n.ID != a.nodeID && n.In(a.cfg.Namespace) && n.Secret != "" && n.Secret != a.secret.Fingerprint() {
			names = append(names, n.Name)
		}
	}
	return names, nil
}
