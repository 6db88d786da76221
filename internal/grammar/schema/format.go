package schema

// formats are the formats that are supported, as patterns of the whole string. They
// match the common forms, so every match is valid, not the reverse.
var formats = map[string]string{
	"date":      fullDate,
	"time":      fullTime,
	"date-time": "(?:" + fullDate + ")T" + fullTime,
	"duration":  `P(?:[1-9][0-9]{0,3}W|(?:[0-9]{1,4}Y(?:[0-9]{1,4}M(?:[0-9]{1,4}D)?)?|[0-9]{1,4}M(?:[0-9]{1,4}D)?|[0-9]{1,4}D)(?:` + hours + `)?|` + hours + `)`,
	"uuid":      `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`,
	"ipv4":      `(?:` + octet + `\.){3}` + octet,
	"ipv6":      `(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}`,
	"hostname":  hostName,
	"email":     `[A-Za-z0-9_+-]{1,20}(?:\.[A-Za-z0-9_+-]{1,20}){0,2}@` + hostName,
	"uri":       `[a-z][a-z0-9]{0,9}://` + hostName + `(?::[1-9][0-9]{0,3})?(?:/[A-Za-z0-9._~-]*)*(?:\?[A-Za-z0-9._~=&-]*)?(?:#[A-Za-z0-9._~-]*)?`,
}

const (
	month31 = `(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])`
	month30 = `(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)`
	month28 = `02-(?:0[1-9]|1[0-9]|2[0-8])`
	leap    = `(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29`

	fullDate = `[0-9]{4}-(?:` + month31 + `|` + month30 + `|` + month28 + `)|` + leap
	fullTime = `(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])`
	hours    = `T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S)`
	octet    = `(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	label    = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?`
	hostName = label + `(?:\.` + label + `){0,4}`
)
