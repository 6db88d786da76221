package metrics

import "unicode/utf8"

// UnknownModel is the value of the model label for requests that name no model
// of this cluster.
const UnknownModel = "unknown_model"

// ModelLabel returns the value of the model label: the name itself if known reports that
// it is served, else [UnknownModel]. Names come from clients: without this check, a
// client could fill the memory with series.
func ModelLabel(name string, known func(name string) bool) string {
	if name != "" && utf8.ValidString(name) && known(name) {
		return name
	}
	return UnknownModel
}
