package config

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestEdit(t *testing.T) {
	for _, tc := range []struct{ name, file, key, value, want string }{
		{"empty file", "", "output", "json", "output: json\n"},
		{"empty file, section", "", "top.interval", "2s", "top:\n  interval: 2s\n"},
		{"change", "# mine\noutput: wide  # as I like it\n\ncolor: never\n", "output", "json", "# mine\noutput: json  # as I like it\n\ncolor: never\n"},
		{"no end of line", "output: wide", "output", "json", "output: json\n"},
		{"new key", "output: wide\n", "color", "never", "output: wide\ncolor: never\n"},
		{"new section", "output: wide\n", "etcd.endpoints", "a:1,b:2", "output: wide\n\netcd:\n  endpoints: [\"a:1\", \"b:2\"]\n"},
		{"key of a section", "top:\n    theme: dark\n\ncolor: never\n", "top.interval", "500ms", "top:\n    theme: dark\n    interval: 500ms\n\ncolor: never\n"},
		{"section of comments", "top:\n  # how often\n  #interval: 1s\n\n  #theme: auto\ncolor: never\n", "top.interval", "2s", "top:\n  # how often\n  #interval: 1s\n  interval: 2s\n\n  #theme: auto\ncolor: never\n"},
		{"empty section", "top:\ncolor: never\n", "top.theme", "dark", "top:\n  theme: dark\ncolor: never\n"},
		{"commented default", "#output: table\n\n#color: auto\n", "output", "yaml", "#output: table\noutput: yaml\n\n#color: auto\n"},
		{"list over lines", "etcd:\n  endpoints:\n    - a:1\n    - b:2\n  # who\n  username: root\n", "etcd.endpoints", "c:3", "etcd:\n  endpoints: [\"c:3\"]\n  # who\n  username: root\n"},
		{"text over lines", "nats:\n  url: >-\n    nats://a,\n    nats://b\n  username: me\n", "nats.url", "nats://c:1", "nats:\n  url: \"nats://c:1\"\n  username: me\n"},
		{"quotes", "cluster: lab\n", "nats.username", `a "b" # c`, "cluster: lab\n\nnats:\n  username: \"a \\\"b\\\" # c\"\n"},
		{"word of YAML", "", "cluster", "null", "cluster: \"null\"\n"},
		{"empty text", "cluster: lab\n", "cluster", "", "cluster: \"\"\n"},
		{"line ends of Windows", "output: wide\r\ncolor: never\r\n", "output", "json", "output: json\r\ncolor: never\r\n"},
		{"home stays as it is written", "", "state_dir", "~/x", "state_dir: \"~/x\"\n"},
		{"secret", "", "etcd.password", "hunter2", "etcd:\n  password: hunter2\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := DynctlTable().Edit("dynctl.yaml", []byte(tc.file), tc.key, tc.value)
			if err != nil || string(got) != tc.want {
				t.Errorf("got %v\n%s\nwant\n%s", err, got, tc.want)
			}
		})
	}
}

func TestEditOfTheExample(t *testing.T) {
	var b bytes.Buffer
	table := DynctlTable()
	if err := table.WriteExample(&b); err != nil {
		t.Fatal(err)
	}
	for _, k := range table.Keys {
		text := k.DefaultString()
		if k.Kind == KindSecret || text == "" && k.Kind != KindList {
			text = "x"
		}
		got, err := table.Edit("dynctl.yaml", b.Bytes(), k.Name, text)
		if err != nil {
			t.Errorf("%s: %v", k.Name, err)
			continue
		}
		// One line more, right after the default that it takes the place of.
		lines := strings.Split(string(got), "\n")
		for i, line := range strings.Split(b.String(), "\n") {
			if lines[i] == line {
				continue
			}
			if want := "#" + lastPart(k.Name) + ":"; !strings.HasPrefix(strings.TrimSpace(lines[i-1]), want) || len(lines) != strings.Count(b.String(), "\n")+2 {
				t.Errorf("%s stands after %q", k.Name, lines[i-1])
			}
			break
		}
	}
}

func TestEditRefuses(t *testing.T) {
	for _, tc := range []struct{ name, file, key, value, want string }{
		{"unknown key", "", "outptu", "json", "unknown key outptu; did you mean output?"},
		{"section", "", "top", "json", "unknown key top"},
		{"wrong value", "", "output", "xml", `output: "xml" is not one of table`},
		{"no unit", "", "top.interval", "5", `"5" has no unit`},
		{"file that is wrong", "clor: never\n", "output", "json", "dynctl.yaml:1: unknown key clor"},
		{"flow style", "top: {theme: dark}\n", "top.interval", "2s", "cannot be edited line by line"},
		{"two documents", "a: 1\n---\nb: 2\n", "output", "json", "dynctl.yaml:1"},
	} {
		if got, err := DynctlTable().Edit("dynctl.yaml", []byte(tc.file), tc.key, tc.value); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v\n%s", tc.name, err, got)
		}
	}
}

// FuzzEdit holds that an edited file is right and says what was asked for, and that every
// refusal is one of the two kinds.
func FuzzEdit(f *testing.F) {
	f.Add("# a\noutput: wide\ntop:\n  # b\n  theme: dark # c\n", "top.interval", "2s")
	f.Add("etcd:\n  endpoints:\n  - a # x\n  - b\n", "etcd.endpoints", "c")
	f.Add("nats: {url: x}\n", "nats.url", "y")
	f.Add("cluster: |\n  a\n  # no comment\n", "cluster", "b")
	f.Fuzz(func(t *testing.T, file, key, value string) {
		table := DynctlTable()
		got, err := table.Edit("f", []byte(file), key, value)
		if err != nil {
			var ps Problems
			if !errors.As(err, &ps) && !errors.Is(err, ErrNotEditable) {
				t.Fatalf("neither Problems nor ErrNotEditable: %v", err)
			}
			return
		}
		after, problems := table.readFile("f", got, "")
		if len(problems) > 0 {
			t.Fatalf("%v\n%s", problems, got)
		}
		k, _ := table.Key(key)
		if want, err := k.parse(value, ""); err != nil || format(after[key].value) != format(want) {
			t.Fatalf("%s is %v, want %v (%v)", key, after[key].value, want, err)
		}
	})
}
