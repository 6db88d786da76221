package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Names and values that were renamed are still read, for one release, and each use is
// a warning that names the new one.

// renamed returns the key that had name in the release before.
func (t Table) renamed(name string) (Key, bool) {
	for _, k := range t.Keys {
		if slices.Contains(k.Former, name) {
			return k, true
		}
	}
	return Key{}, false
}

// formerKeys are a key as it was spelled before, for the names of its flags and
// variables.
func (k Key) formerKeys() []Key {
	var out []Key
	for _, name := range k.Former {
		former := k
		former.Name, former.Flag, former.Short = name, "", ""
		out = append(out, former)
	}
	return out
}

// current returns a value with its choices as they are spelled now.
func (k Key) current(v any) any {
	switch v := v.(type) {
	case string:
		return k.choice(v)
	case []string:
		out := slices.Clone(v)
		for i, item := range out {
			out[i] = k.choice(item)
		}
		return out
	}
	return v
}

// choice returns a choice as it is spelled now: one that was renamed, or one with
// underscores in place of hyphens, as Dynamo's variables have them.
func (k Key) choice(text string) string {
	if now, ok := k.FormerChoices[text]; ok {
		return now
	}
	if now := strings.ReplaceAll(text, "_", "-"); !slices.Contains(k.Choices, text) && slices.Contains(k.Choices, now) {
		return now
	}
	return text
}

// FormerSpelling returns a sentence for a user who gave the key under name, or a value
// as text, that was renamed; empty if neither was.
func (k Key) FormerSpelling(name, text string) string {
	if name != k.Name {
		return Renamed(name, k.Name)
	}
	items := []string{text}
	if k.Kind == KindList {
		items, _ = k.parseList(text)
	}
	for _, item := range items {
		if now, ok := k.FormerChoices[item]; ok {
			return Renamed(fmt.Sprintf("the value %s of %s", item, k.Name), now)
		}
	}
	return ""
}

// Renamed returns the sentence for a user who gave something under the name that it had in
// the release before.
func Renamed(former, now string) string {
	return fmt.Sprintf("%s is called %s now; the next release removes the old name", former, now)
}

// CurrentSettings returns run-time settings as they are stored, under the names and with
// the choices that they have now. Where both names of a key are set, the present one
// counts. Settings that this release does not know, or cannot read, stay as they are.
func CurrentSettings(stored map[string]json.RawMessage) map[string]json.RawMessage {
	out := maps.Clone(stored)
	for _, k := range RuntimeKeys() {
		for _, name := range append([]string{k.Name}, k.Former...) {
			raw, ok := out[name]
			if !ok {
				continue
			}
			delete(out, name)
			if _, ok := out[k.Name]; ok {
				continue
			}
			if v, err := k.DecodeRuntime(raw); err == nil && k.Choices != nil {
				if now, err := k.EncodeRuntime(v); err == nil {
					raw = now
				}
			}
			out[k.Name] = raw
		}
	}
	return out
}
