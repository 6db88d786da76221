package tui

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// rolling is the argument that restarts all workers, as in dynctl restart.
const rolling = "--rolling"

func restart() *action {
	a := &action{
		kind: client.ActRestart, verb: "Restart", args: "<worker> | " + rolling, about: "restart a worker, or all", warns: lastOfRole,
		complete: func(m *model) []string { return append(workerNames(m), rolling) },
		cannot: func(w *cluster.Worker) string {
			switch w.Desire {
			case cluster.DesireDrain:
				return w.Name + " is drained: it starts when it is resumed"
			case cluster.DesireRemove:
				return w.Name + " is being removed"
			}
			return ""
		},
		effect: func(_ *moment.Moment, order client.Action) string {
			if order.Kind == client.ActRestartAll {
				return "All workers restart, some of each role at a time, as rollout.max_unavailable says. Requests go on at other workers."
			}
			return "It hands over what it has, gives everything back and starts again under its name."
		},
	}
	a.parse = func(m *moment.Moment, args []string) (client.Action, error) {
		if len(args) == 1 && args[0] == rolling {
			return client.Action{Kind: client.ActRestartAll}, nil
		}
		return a.parseWorker(m, args)
	}
	return a
}

func scale() *action {
	return &action{
		kind: client.ActScale, verb: "Scale", args: "[pool=<name>] [prefill=<n>] [decode=<n>] [encode=<n>]", about: "change the numbers of workers",
		complete: func(m *model) []string {
			words := []string{"prefill=", "decode=", "encode="}
			if t := m.shown.Snap.Topology; t != nil {
				for _, name := range slices.Sorted(maps.Keys(t.Pools)) {
					words = append(words, inPool+name)
				}
			}
			return words
		},
		parse: parseScale,
		effect: func(m *moment.Moment, order client.Action) string {
			now := m.Snap.Topology
			if now == nil {
				return "" // parse refuses it
			}
			next := *now
			_ = client.Scaled(&next, order.Pool, order.Workers) // parse has checked it
			return fmt.Sprintf("From %s to %s. Surplus workers drain before they go.", shape(now.In(order.Pool)), shape(next.In(order.Pool)))
		},
	}
}

// inPool begins the argument that names the pool whose workers are scaled.
const inPool = "pool="

// parseScale reads numbers of workers as prefill=N, decode=N and encode=N, and their pool.
func parseScale(m *moment.Moment, args []string) (client.Action, error) {
	order := client.Action{Kind: client.ActScale, Workers: cluster.Counts{}}
	for _, arg := range args {
		if pool, is := strings.CutPrefix(arg, inPool); is && pool != "" && order.Pool == "" {
			order.Pool = pool
			continue
		}
		name, text, _ := strings.Cut(arg, "=")
		role, err := cluster.ParseRole(name)
		if _, twice := order.Workers[role]; twice || err != nil {
			return order, errUsage
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return order, fmt.Errorf("%s: %q is not a number of workers", role, text)
		}
		order.Workers[role] = n
	}
	switch now := m.Snap.Topology; {
	case len(order.Workers) == 0:
		return order, errUsage
	case now == nil || order.Pool == "" && now.Model.Name == "":
		return order, errors.New("nothing was ever declared in this cluster")
	default:
		next := *now
		return order, client.Scaled(&next, order.Pool, order.Workers)
	}
}

func set() *action {
	return &action{
		kind: client.ActSet, verb: "Set", args: "<setting>=<value>", about: "change a setting while the cluster runs",
		complete: func(*model) []string { return client.SettingWords() },
		parse: func(_ *moment.Moment, args []string) (client.Action, error) {
			name, value, ok := strings.Cut(strings.Join(args, " "), "=")
			if !ok {
				return client.Action{}, errUsage
			}
			current, _, err := client.EncodeSetting(name, value)
			return client.Action{Kind: client.ActSet, Setting: current, Value: value}, err
		},
		effect: func(*moment.Moment, client.Action) string {
			return "Frontends and workers take it up at once. Requests that are under way finish as they began."
		},
	}
}

// shape is the number of workers of each role in the main pool.
func shape(t cluster.Topology) string {
	text := fmt.Sprintf("%d prefill + %d decode", t.Prefill, t.Decode)
	if t.Encode > 0 {
		text += fmt.Sprintf(" + %d encode", t.Encode)
	}
	return text
}
