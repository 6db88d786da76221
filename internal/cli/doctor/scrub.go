package doctor

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// masked stands for what a report must not hold.
const masked = "(hidden)"

// shapes are texts that are secrets wherever they stand. The groups of each stay.
var shapes = []*regexp.Regexp{
	regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s/"']+(@)`),             // user and password of an address
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]+`),       // headers
	regexp.MustCompile(`(--[a-z-]*(?:key|token|password|secret|join)[ =])\S+`), // arguments
	regexp.MustCompile(`(\b)(?:hf_|sk-|gh[pousr]_|dynctl1:)[A-Za-z0-9._~+/=-]+`),
	regexp.MustCompile(`(\b)S[ACNOUX][A-Z2-7]{56}\b`), // seeds of NKeys
	regexp.MustCompile(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?-----END [A-Z ]*PRIVATE KEY-----`),
	regexp.MustCompile(`(?i)((?:api[_-]?key|password|passwd|secret|credential|[_-]token)["']?\s*[:=]\s*["']?)[^\s"',}]+`),
}

// secretName finds variables of the environment whose values are secrets.
var secretName = regexp.MustCompile(`(?i)KEY|TOKEN|SECRET|PASSW|CRED|AUTH|JOIN`)

// scrubber masks secrets in what goes into a report.
type scrubber struct{ known []string }

// know adds a secret: wherever it stands, it is masked. Texts of fewer than four letters
// are in too many words.
func (s *scrubber) know(secret string) {
	if secret = strings.TrimSpace(secret); len(secret) >= 4 && !slices.Contains(s.known, secret) {
		s.known = append(s.known, secret)
		if quoted, err := json.Marshal(secret); err == nil { // as it stands in JSON
			s.known = append(s.known, string(quoted[1:len(quoted)-1]))
		}
	}
}

// environ knows the values of variables whose names say that they are secrets.
func (s *scrubber) environ(environ []string) {
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); secretName.MatchString(name) {
			for part := range strings.SplitSeq(value, ",") { // several API keys
				s.know(part)
			}
			s.know(value)
		}
	}
}

func (s *scrubber) clean(text []byte) []byte {
	// The longest first: another one may be a part of it.
	slices.SortFunc(s.known, func(a, b string) int { return len(b) - len(a) })
	for _, k := range s.known {
		text = bytes.ReplaceAll(text, []byte(k), []byte(masked))
	}
	for _, shape := range shapes {
		text = shape.ReplaceAll(text, []byte("${1}"+masked+"${2}"))
	}
	return text
}
