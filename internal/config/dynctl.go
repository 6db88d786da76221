package config

import "time"

// Dynctl holds every setting of the operator's command line.
type Dynctl struct {
	Cluster   string `mapstructure:"cluster"`
	Namespace string `mapstructure:"namespace"`
	StateDir  string `mapstructure:"state_dir"`
	// SecretFile holds the secret of the cluster; empty means the one in the state directory.
	SecretFile string `mapstructure:"secret_file"`
	Output     string `mapstructure:"output"` // table, wide, json, yaml, name
	Color      string `mapstructure:"color"`  // auto, always, never
	ReadOnly   bool   `mapstructure:"read_only"`

	Discovery  Discovery        `mapstructure:"discovery"`
	Kubernetes KubernetesClient `mapstructure:"kubernetes"`

	Etcd EtcdClient `mapstructure:"etcd"`
	NATS NATSClient `mapstructure:"nats"`

	Frontend FrontendClient `mapstructure:"frontend"`

	Top Top `mapstructure:"top"`
}

// Top configures the dashboard.
type Top struct {
	Interval time.Duration `mapstructure:"interval"`
	Theme    string        `mapstructure:"theme"`
	ASCII    bool          `mapstructure:"ascii"`
}

// DynctlTable returns the settings of dynctl.
func DynctlTable() Table {
	t := Table{
		Program: "dynctl",
		Sections: []Section{
			{"", "The cluster to talk to, and how to answer"},
			{"discovery", "What holds the shared state of the cluster; of one that runs here, the dynamod in state_dir says so"},
			{"kubernetes", "The Kubernetes API, for discovery.backend kubernetes"},
			{"etcd", "etcd of the cluster; without endpoints, that of the dynamod in state_dir"},
			{"nats", "NATS of the cluster; without a URL, that of the dynamod in state_dir"},
			{"frontend", "Frontends that serve HTTPS"},
			{"top", "The dashboard"},
		},
	}
	for _, k := range clusterKeys() {
		if k.Name == "namespace" {
			k.Short = "n"
			k.Help += "; without one, that for which the cluster of this machine was started"
		}
		t.Keys = append(t.Keys, k)
	}
	t.Keys = append(t.Keys,
		Key{Name: "output", Kind: KindString, Default: "table", Short: "o", Choices: []string{"table", "wide", "json", "yaml", "name"}, Help: "format of answers"},
		Key{Name: "color", Kind: KindString, Default: "auto", Choices: []string{"auto", "always", "never"}, Help: "color on terminals, always or never"},
		Key{Name: "read_only", Kind: KindBool, Default: false, Help: "refuse every command that changes the cluster"},
	)
	t.Keys = append(t.Keys, discoveryKeys()...)
	t.Keys = append(t.Keys, kubernetesClientKeys()...)
	t.Keys = append(t.Keys, etcdClientKeys()...)
	t.Keys = append(t.Keys, natsClientKeys()...)
	t.Keys = append(t.Keys, frontendClientKeys()...)
	t.Keys = append(t.Keys,
		Key{Name: "top.interval", Kind: KindDuration, Default: time.Second, Flag: "interval", Command: "top", Help: "time between two snapshots"},
		Key{Name: "top.theme", Kind: KindString, Default: "auto", Choices: []string{"auto", "dark", "light", "mono", "contrast", "deuteranopia", "tritanopia"}, Flag: "theme", Command: "top", Help: "colors"},
		Key{Name: "top.ascii", Kind: KindBool, Default: false, Flag: "ascii", Command: "top", Help: "draw with ASCII characters only"},
	)
	return t
}
