package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// DecodeJSON decodes the value of one key. It is a decoder for [WatchPrefix].
func DecodeJSON[T any](kv KV) (T, error) {
	var v T
	if err := json.Unmarshal(kv.Value, &v); err != nil {
		return v, fmt.Errorf("decode %s: %w", kv.Key, err)
	}
	return v, nil
}

// GetJSON reads and decodes one key. The revision is for CompareAndSwap.
func GetJSON[T any](ctx context.Context, s Reader, key string) (T, Revision, error) {
	kv, err := s.Get(ctx, key)
	if err != nil {
		var zero T
		return zero, 0, err
	}
	v, err := DecodeJSON[T](kv)
	return v, kv.ModRevision, err
}

// PutJSON encodes and writes one key.
func PutJSON(ctx context.Context, s Writer, key string, v any, opts ...PutOption) (Revision, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return 0, fmt.Errorf("encode %s: %w", key, err)
	}
	return s.Put(ctx, key, body, opts...)
}

// updateAttempts bounds [UpdateJSON] under contention.
const updateAttempts = 8

// UpdateJSON changes one key by compare-and-swap and returns the value written. change
// gets the current value; exists is false when there is none. It runs again after a
// concurrent change, and its error ends the update. After eight conflicts UpdateJSON
// fails with [ErrConflict].
func UpdateJSON[T any](ctx context.Context, s ReadWriter, key string, change func(current T, exists bool) (T, error), opts ...PutOption) (T, Revision, error) {
	var zero T
	for attempt := 1; ; attempt++ {
		current, rev, err := GetJSON[T](ctx, s, key)
		exists := err == nil
		if err != nil && !errors.Is(err, ErrNotFound) {
			return zero, 0, err
		}
		next, err := change(current, exists)
		if err != nil {
			return zero, 0, err
		}
		body, err := json.Marshal(next)
		if err != nil {
			return zero, 0, fmt.Errorf("encode %s: %w", key, err)
		}
		rev, err = s.CompareAndSwap(ctx, key, rev, body, opts...)
		switch {
		case err == nil:
			return next, rev, nil
		case !errors.Is(err, ErrConflict) || attempt == updateAttempts:
			return zero, 0, err
		}
	}
}
