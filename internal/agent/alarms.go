package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/host"
	"github.com/dynctl/dynctl/internal/metrics"
)

// Subjects of alarms; they are values of a metric's label.
const (
	alarmEtcd   = "etcd"
	alarmNATS   = "nats"
	alarmForgot = "store-forgot"
	alarmDisk   = "disk"
)

const (
	// diskLow is the free space below which the disk of the state directory counts as
	// nearly full, in bytes. Embedded servers need 16 MiB to start, and logs leave 32 MiB
	// free.
	diskLow = 64 << 20
	// diskEvery is the interval of checks of the disk.
	diskEvery = 2 * time.Second
	// alarmRetry is the pause before a change that could not be published is published
	// again.
	alarmRetry = time.Second
	alarmTell  = 3 * time.Second // bounds one try
)

// alarms holds problems that an operator has to solve although the node serves. They
// appear at once in the log, a metric and the answer of /health. They appear in the
// node's record and among the events when etcd and NATS answer.
type alarms struct {
	log     func() *slog.Logger
	metrics *metrics.Node
	changed chan struct{} // capacity 1

	mu  sync.Mutex
	now map[string]string // texts by subject
}

func newAlarms(r *metrics.Registry, log func() *slog.Logger) *alarms {
	a := &alarms{
		log:     log,
		metrics: metrics.NewNode(r),
		changed: make(chan struct{}, 1),
		now:     map[string]string{},
	}
	for _, about := range []string{alarmEtcd, alarmNATS, alarmForgot, alarmDisk} {
		a.metrics.Alarm(about, false)
	}
	return a
}

// dropped counts a dropped line of a log.
func (a *alarms) dropped() { a.metrics.LogDropped.Inc() }

// raise sets the alarm about a subject. Another text for the same subject replaces the
// first and is no new alarm.
func (a *alarms) raise(about, text string) {
	a.mu.Lock()
	_, already := a.now[about]
	a.now[about] = text
	a.mu.Unlock()
	if already {
		return
	}
	a.metrics.Alarm(about, true)
	a.log().Error("alarm", "about", about, "text", text)
	a.wake()
}

// clear ends an alarm, if there is one.
func (a *alarms) clear(about string) {
	a.mu.Lock()
	_, was := a.now[about]
	delete(a.now, about)
	a.mu.Unlock()
	if !was {
		return
	}
	a.metrics.Alarm(about, false)
	a.log().Info("alarm is over", "about", about)
	a.wake()
}

func (a *alarms) wake() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// texts returns the texts of all alarms; nil if there are none.
func (a *alarms) texts() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, about := range slices.Sorted(maps.Keys(a.now)) {
		out = append(out, a.now[about])
	}
	return out
}

// current returns a copy of all alarms.
func (a *alarms) current() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.now)
}

// tellAlarms publishes changes until ctx ends.
func (a *Agent) tellAlarms(ctx context.Context) {
	told := map[string]string{}
	subject := events.Subject(a.cfg.Namespace, cluster.ComponentAgent, cluster.TopicTopology)
	event := func(reason, text string) error {
		message := a.cfg.Node.Name + ": " + text
		return a.stores.bus.Publish(ctx, subject, cluster.TopologyEvent{Time: time.Now(), Action: cluster.ActionAlarm, Reason: reason, Message: message})
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.alarms.changed:
		}
		now := a.alarms.current()
		failed := false
		for about, text := range now {
			if _, already := told[about]; !already {
				if failed = event(about, text) != nil || failed; !failed {
					told[about] = text
				}
			}
		}
		for about := range told {
			if _, still := now[about]; !still {
				if failed = event(about+" over", "is over: "+told[about]) != nil || failed; !failed {
					delete(told, about)
				}
			}
		}
		// The runtime keeps trying to write the record.
		limited, cancel := context.WithTimeout(ctx, alarmTell)
		if err := a.nodeKept.Update(limited, a.encodeNode); err != nil && ctx.Err() == nil {
			a.log.Debug("cannot write alarms to the node's record yet", "error", err)
		}
		cancel()
		if failed {
			select {
			case <-time.After(alarmRetry):
				a.alarms.wake()
			case <-ctx.Done():
			}
		}
	}
}

// watchDisk raises an alarm while the disk of the state directory is nearly full.
func (a *Agent) watchDisk(ctx context.Context) {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for {
		free, _, err := host.Disk(a.dir.Path)
		a.checkDisk(free, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (a *Agent) checkDisk(free uint64, err error) {
	if err != nil || free >= diskLow {
		a.alarms.clear(alarmDisk)
		return
	}
	text := fmt.Sprintf("the disk of %s is nearly full, %d MiB are free; make room, or the store and NATS stop", a.dir.Path, free>>20)
	if free < logReserve {
		text += "; logs are not written any more"
	}
	a.alarms.raise(alarmDisk, text)
}
