package agent

import (
	"context"
	"errors"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/planner/live"
	"github.com/dynctl/dynctl/internal/store"
)

// electPlanner is the node's election in which a planner runs beside whoever leads, as long as it leads.
func (a *Agent) electPlanner(ctx context.Context, prefix, value string, lead func(context.Context) error) error {
	return a.drt.Elect(ctx, prefix, value, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			live.Run(ctx, live.Config{
				Store: a.stores.store, Bus: a.stores.bus, Namespace: a.cfg.Namespace, Node: a.cfg.Node.Name,
				Settings: a.settings.planner, Kubernetes: a.kubernetes, Metrics: metrics.NewPlanner(a.metrics), Log: a.log,
				Leads: func(ctx context.Context) (bool, error) {
					return store.Leads(ctx, a.stores.store, prefix, a.drt.Lease().ID)
				},
			})
		})
		err := lead(ctx)
		cancel()
		wg.Wait()
		return err
	})
}

// kubernetes returns a client of the Kubernetes API, which need not have the state of the cluster.
func (a *Agent) kubernetes() (*kube.Client, error) { return dial.Kubernetes(a.cfg.Kubernetes) }

// planner returns the planner's settings. The error names settings that do not go together.
func (s *settings) planner() (live.Settings, error) {
	p := s.a.cfg.Planner
	override(s, settingPlannerMode, &p.Mode)
	override(s, settingPlannerConnector, &p.Connector)
	override(s, settingPlannerKubePrefill, &p.KubernetesPrefill)
	override(s, settingPlannerKubeDecode, &p.KubernetesDecode)
	override(s, settingPlannerGoal, &p.Goal)
	override(s, settingPlannerTTFT, &p.TTFT)
	override(s, settingPlannerITL, &p.ITL)
	override(s, settingPlannerPercentile, &p.Percentile)
	override(s, settingPlannerDevices, &p.Devices)
	override(s, settingPlannerPrefillMin, &p.PrefillMin)
	override(s, settingPlannerPrefillMax, &p.PrefillMax)
	override(s, settingPlannerDecodeMin, &p.DecodeMin)
	override(s, settingPlannerDecodeMax, &p.DecodeMax)
	override(s, settingPlannerPredictor, &p.Predictor)
	override(s, settingPlannerInterval, &p.Interval)
	override(s, settingPlannerForecast, &p.ForecastInterval)
	override(s, settingPlannerCoolDown, &p.CoolDown)
	override(s, settingPlannerThresholds, &p.Thresholds)
	override(s, settingPlannerTimeout, &p.ActionTimeout)
	d, _ := s.settings()
	var targets live.Targets
	err := p.Check()
	for _, t := range []struct {
		text string
		into *cluster.ScaleTarget
	}{{p.KubernetesPrefill, &targets.Prefill}, {p.KubernetesDecode, &targets.Decode}} {
		var wrong error
		*t.into, wrong = cluster.ParseScaleTarget(t.text)
		err = errors.Join(err, wrong)
	}
	limits := limitsOf(d)
	c := plannerConfig(p, limits.Enforce)
	c.KeepRoles = p.Connector == config.ConnectorKubernetes && targets.Prefill != targets.Decode
	return live.Settings{
		Planner: c, Connector: live.Connector(p.Connector), Targets: targets, MaxLocalPrefill: limits.MaxLocalTokens,
		LeastDelay: limits.Conditional.Rule == cluster.ConditionalLeastDelay, Threshold: limits.Conditional.Rule == cluster.ConditionalThreshold,
	}, err
}

// plannerConfig returns the core's configuration. A worker takes one device of its node, which may be a
// group of GPUs. Where disagg.enforce refuses prompts that no prefill worker computes, there is always one.
func plannerConfig(p config.Planner, enforce bool) planner.Config {
	c := planner.Defaults()
	c.Mode = planner.Mode(p.Mode)
	c.Target = planner.Target{Goal: planner.Goal(p.Goal), TTFT: p.TTFT, ITL: p.ITL, Percentile: float64(p.Percentile) / 100}
	c.Devices = p.Devices
	c.Prefill.Min, c.Prefill.Max = p.PrefillMin, p.PrefillMax
	c.Decode.Min, c.Decode.Max = p.DecodeMin, p.DecodeMax
	c.Predictor = p.Predictor
	c.LoadInterval, c.ThroughputInterval = p.Interval, p.ForecastInterval
	c.ForecastStep, c.CoolDown = 4*p.Interval, p.CoolDown
	c.StaleAfter = max(c.StaleAfter, 2*c.LoadInterval)
	c.ActionTimeout = p.ActionTimeout
	c.Thresholds = p.Thresholds
	if enforce {
		c.Aggregate, c.Prefill.Min = false, max(c.Prefill.Min, 1)
	}
	return c
}
