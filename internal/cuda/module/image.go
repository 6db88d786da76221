package module

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// ErrNoVariant says that a unit has nothing for the device.
var ErrNoVariant = errors.New("no kernels for this device")

// Image is a unit of kernels for one target. Images of the same name hold the same
// kernels for different ones.
type Image struct {
	Name    string
	PTX     []byte
	Kernels []string
	// Origin says who compiled it, and Warnings what the compiler had to say; both are
	// empty for what is part of this program.
	Origin, Warnings string
}

// Builtin returns the kernels of this program.
func Builtin() []Image {
	var out []Image
	for _, m := range kernels.Modules() {
		out = append(out, Image{Name: m.Name, PTX: m.PTX, Kernels: m.Kernels})
	}
	return out
}

// Hash names the PTX, in measurements and messages.
func (i Image) Hash() string {
	sum := sha256.Sum256(i.PTX)
	return hex.EncodeToString(sum[:6])
}

// Target is the architecture of PTX: devices of a compute capability and all later ones, or,
// where it uses what only that one has, exactly that.
type Target struct {
	Capability int  // 90 for 9.0
	Exact      bool // sm_90a
}

// String is the target's name, such as "sm_90a".
func (t Target) String() string {
	s := "sm_" + strconv.Itoa(t.Capability)
	if t.Exact {
		s += "a"
	}
	return s
}

// runsOn reports whether code for the target runs on a device.
func (t Target) runsOn(capability int) bool {
	return t.Capability == capability || !t.Exact && t.Capability < capability
}

var target = regexp.MustCompile(`(?m)^\.target\s+sm_([1-9]\d{1,2})(a?)\b`)

// Target reads what the PTX is made for.
func (i Image) Target() (Target, error) {
	m := target.FindSubmatch(i.PTX)
	if m == nil {
		return Target{}, fmt.Errorf("%w: kernels %s name no target", driver.ErrInvalid, i.Name)
	}
	n, err := strconv.Atoi(string(m[1]))
	return Target{Capability: n, Exact: len(m[2]) > 0}, err
}

// chosen is an image that fits a device.
type chosen struct {
	Image
	target Target
}

// choose picks an image of each unit for a device: the one that is made for exactly this
// device, else the one for the latest earlier one. The order is that of the units. Units that
// other units stand for are left out where they do not fit, or all of them.
func choose(images []Image, p driver.Properties, portable bool) ([]chosen, error) {
	capability := 10*p.Major + p.Minor
	var out []chosen
	tried := map[string][]string{}
	for _, i := range images {
		t, err := i.Target()
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(out, func(c chosen) bool { return c.Name == i.Name })
		switch {
		case kernels.Exact(i.Name) && (portable || !t.runsOn(capability)):
		case !t.runsOn(capability):
			tried[i.Name] = append(tried[i.Name], t.String())
		case at < 0:
			out = append(out, chosen{i, t})
		case t.Capability > out[at].target.Capability || t.Capability == out[at].target.Capability && t.Exact:
			out[at] = chosen{i, t}
		}
	}
	for name, targets := range tried {
		if !slices.ContainsFunc(out, func(c chosen) bool { return c.Name == name }) {
			return nil, fmt.Errorf("%w: %s has compute capability %d.%d, and %s is made for %v", ErrNoVariant, p.Name, p.Major, p.Minor, name, targets)
		}
	}
	return out, nil
}

// Targets returns the architectures of the kernels that a device would get, such
// as "sm_80" and "sm_90a". The error is ErrNoVariant for a device that gets none.
func Targets(p driver.Properties) ([]string, error) {
	images, err := choose(Builtin(), p, false)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, i := range images {
		names = append(names, i.target.String())
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
