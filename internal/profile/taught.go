package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// maxTaught bounds the JSON form of a profile in a cluster's store.
const maxTaught = 512 << 10

// Taught is a measured profile that the planner of a cluster goes by, while it has not learned
// itself how fast the workers of the model are. Servers of other engines do not tell what their
// steps cost: for them it is all that the planner has.
type Taught struct {
	Model   string    `json:"model"`
	Time    time.Time `json:"time"`
	Server  string    `json:"server"` // that was measured
	Profile Profile   `json:"profile"`
}

// Encode returns the JSON form, or why the planner cannot go by the profile.
func (t Taught) Encode() ([]byte, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(t)
	if err == nil && len(b) > maxTaught {
		err = fmt.Errorf("the profile has %d bytes, and the store of the cluster takes %d: measure fewer points", len(b), maxTaught)
	}
	return b, err
}

// DecodeTaught reads what Encode wrote.
func DecodeTaught(b []byte) (t Taught, err error) {
	if len(b) > maxTaught {
		return t, fmt.Errorf("a profile of %d bytes: more than %d", len(b), maxTaught)
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return t, fmt.Errorf("a measured profile: %w", err)
	}
	return t, t.validate()
}

func (t Taught) validate() error {
	p := &t.Profile
	if err := p.Validate(); err != nil {
		return err
	}
	switch {
	case t.Model == "":
		return errors.New("a measured profile without a model")
	case !(p.TTFT(1) > 0) || !(p.ITL(1, 1) > 0) || !(p.PrefillThroughput(1) > 0):
		return errors.New("the profile says of prompts or of decoding that they take no time")
	}
	return nil
}
