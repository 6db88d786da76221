package agent

import (
	"reflect"
	"testing"

	"github.com/dynctl/dynctl/internal/host"
)

func TestPlaceDevices(t *testing.T) {
	one := host.Processors{Nodes: []host.NUMANode{{ID: 0, CPUs: []int{0, 1, 2, 3}}}}
	two := host.Processors{Nodes: []host.NUMANode{{ID: 0, CPUs: []int{0, 1, 4, 5}}, {ID: 1, CPUs: []int{2, 3, 6, 7}}}}
	limited := two
	limited.Quota = 2.5
	for _, tc := range []struct {
		name           string
		on             host.Processors
		devices, cores int
		want           []place
	}{
		{"one node, one device that is not bound", one, 0, 0, []place{{4, nil, -1}}},
		{"fewer cores", one, 0, 3, []place{{3, nil, -1}}},
		{"several devices of one node", one, 2, 0, []place{{2, []int{0, 1}, 0}, {2, []int{2, 3}, 0}}},
		{"an uneven number", one, 3, 0, []place{{2, []int{0, 1}, 0}, {1, []int{2}, 0}, {1, []int{3}, 0}}},
		{"more cores than CPUs", one, 2, 10, []place{{5, nil, 0}, {5, nil, 0}}},
		{"a device for each node", two, 0, 0, []place{{4, []int{0, 1, 4, 5}, 0}, {4, []int{2, 3, 6, 7}, 1}}},
		{"two for each node", two, 4, 0, []place{{2, []int{0, 1}, 0}, {2, []int{2, 3}, 1}, {2, []int{4, 5}, 0}, {2, []int{6, 7}, 1}}},
		{"three on two nodes", two, 3, 0, []place{{3, nil, 0}, {3, []int{2, 3, 6, 7}, 1}, {2, []int{4, 5}, 0}}},
		{"one across nodes", two, 1, 0, []place{{8, nil, -1}}},
		{"a quota", limited, 0, 0, []place{{2, []int{0, 1, 4, 5}, 0}, {1, []int{2, 3, 6, 7}, 1}}},
		{"a quota and one device", limited, 1, 0, []place{{3, nil, -1}}},
		{"none", two, -1, 0, nil},
		{"one core", two, 0, 1, []place{{1, nil, -1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := placeDevices(tc.on, tc.devices, tc.cores)
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tc.want)
			}
		})
	}
	if _, err := placeDevices(one, 5, 0); err == nil {
		t.Error("five devices on four cores")
	}
}
