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

// howToJoin ends errors about a secret that is missing or another one.
const howToJoin = "run \"dynctl credentials --join\" on a machine of the cluster and start this node with dynamod --join TOKEN, or set secret_file"

// takeSecret reads the cluster's secret. The first node of a cluster makes it; who
// connects to a server inside a dynamod cannot be the first.
func (a *Agent) takeSecret() (err error) {
	a.secret, err = credentials.Load(a.secretPath())
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if a.cfg.Etcd.External() && a.cfg.Etcd.InDynamod() || a.cfg.NATS.External() && a.cfg.NATS.InDynamod() {
		return fmt.Errorf("%w: %w: %s", err, dial.ErrNoSecret, howToJoin)
	}
	made := credentials.New()
	a.secret, err = credentials.Create(a.secretPath(), made)
	a.secretMade = a.secret == made
	return err
}

// makeCredentials makes those of the servers that run in this process, if any do.
func (s *stores) makeCredentials(a *Agent) (err error) {
	if !a.cfg.Etcd.External() || !a.cfg.NATS.External() {
		s.credentials, err = embedded.NewCredentials(a.secret, a.serverNames()...)
	}
	return err
}

// claim is the value of [cluster.SecretKey].
type claim struct {
	Fingerprint string `json:"fingerprint"`
}

// errOtherSecret is returned where the nodes of a cluster have another secret.
var errOtherSecret = errors.New("the nodes of this cluster have another secret")

var errClaimed = errors.New("claimed already")

// claimSecret makes sure that all nodes of the namespace have one secret, where the store
// does not see to that. One that no node uses any more is replaced, as after a new secret
// was made.
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
		// It was never used, and would be in the way of the right one.
		err = errors.Join(err, os.Remove(a.secretPath()))
	}
	if err != nil {
		return fmt.Errorf("agree on the cluster's secret: %w", err)
	}
	return nil
}

// confirmSecret looks again once others can see this node: of two that claimed at a time,
// at least the first sees that the claim is no longer its own.
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

// strangers names the nodes of this namespace that have another secret.
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
