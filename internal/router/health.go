package router

// avoid excludes unhealthy candidates while there is a healthy one that may be chosen or is
// only busy, and admits those again that were excluded so at an earlier preview. If all are
// unhealthy, each is better than none.
func avoid(candidates []Candidate) {
	unhealthy, healthy := false, false
	for i := range candidates {
		c := &candidates[i]
		if c.avoided {
			c.Excluded, c.avoided = "", false
		}
		switch {
		case c.Unhealthy != "":
			unhealthy = true
		case c.Excluded == "" || c.busy:
			healthy = true
		}
	}
	if !unhealthy || !healthy {
		return
	}
	for i := range candidates {
		if c := &candidates[i]; c.Unhealthy != "" && c.Excluded == "" {
			c.Excluded, c.avoided = "unhealthy: "+c.Unhealthy, true
		}
	}
}
