package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// RuntimeKeys returns the settings of dynamod that a cluster can change while it runs,
// in the order of the table. They are the same on all nodes as long as they are set
// there; where they are not, each node's own configuration counts.
func RuntimeKeys() []Key {
	return slices.DeleteFunc(DynamodTable().Keys, func(k Key) bool { return !k.Runtime })
}

// RuntimeKey returns the run-time setting of that name, or of that former name. The error
// names one that may have been meant.
func RuntimeKey(name string) (Key, error) {
	keys := RuntimeKeys()
	names := make([]string, len(keys))
	for i, k := range keys {
		if k.Name == name || slices.Contains(k.Former, name) {
			return k, nil
		}
		names[i] = k.Name
	}
	if _, ok := DynamodTable().Key(name); ok {
		return Key{}, fmt.Errorf("%s does not change at run time: set it in the configuration of each dynamod, which takes effect when it starts", name)
	}
	return Key{}, fmt.Errorf("no run-time setting %q%s", name, didYouMean(name, names))
}

// ParseRuntime reads the text of a run-time setting, as on a command line.
func (k Key) ParseRuntime(text string) (any, error) {
	v, err := k.parse(text, "")
	if err != nil {
		return nil, err
	}
	return v, k.checkRuntime(v)
}

// EncodeRuntime writes the typed value of a run-time setting as it is kept in the
// store: JSON, with durations as text.
func (k Key) EncodeRuntime(v any) (json.RawMessage, error) {
	b, err := json.Marshal(Value{Value: v}.Plain())
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", k.Name, err)
	}
	return b, nil
}

// DecodeRuntime reads what EncodeRuntime has written.
func (k Key) DecodeRuntime(raw []byte) (any, error) {
	v, err := k.decodeRuntime(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %s is not %s", k.Name, raw, k.Expect())
	}
	v = k.current(v)
	if err := errors.Join(k.check(v), k.checkRuntime(v)); err != nil {
		return nil, fmt.Errorf("%s: %w", k.Name, err)
	}
	return v, nil
}

func (k Key) decodeRuntime(raw []byte) (any, error) {
	if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return nil, ErrSyntax // would leave what it is read into
	}
	switch k.Kind {
	case KindInt:
		var n int
		err := json.Unmarshal(raw, &n)
		return n, err
	case KindShare, KindRatio:
		var f float64
		err := json.Unmarshal(raw, &f)
		return f, err
	case KindBool:
		var b bool
		err := json.Unmarshal(raw, &b)
		return b, err
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, err
	}
	return k.parseKind(text, "")
}

// checkRuntime refuses what would never work.
func (k Key) checkRuntime(v any) error {
	if d, ok := v.(time.Duration); ok && d == 0 {
		return errors.New("0 would never wait; expected a duration like 30s")
	}
	return nil
}
