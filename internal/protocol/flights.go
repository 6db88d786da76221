package protocol

import "github.com/dynctl/dynctl/internal/cluster"

// FlightsRequest asks a frontend for all its flights.
type FlightsRequest struct{}

// FlightsPage is a part of the answer. The changes of all pages, from no flight on, give
// the flights of the frontend.
type FlightsPage struct {
	Frontend cluster.InstanceID `json:"frontend"`
	// Epoch and Next are the position of the answer: the number of the first change that
	// the pages do not contain.
	Epoch   uint64                 `json:"epoch"`
	Next    uint64                 `json:"next"`
	Changes []cluster.FlightChange `json:"changes"`
}
