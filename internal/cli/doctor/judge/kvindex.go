package judge

import (
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// KVIndex judges what the frontends know of the workers' KV caches. now is the time at which
// their answers came.
func KVIndex(all []cluster.KVIndex, err error, now time.Time) Finding {
	switch {
	case errors.Is(err, client.ErrNoIndex):
		return Skipped("no frontend reports its prefix index")
	case err != nil:
		return Bad("dynctl logs of the nodes with frontends", "%v", err)
	}
	caches := cluster.CombineKVIndexes(all, now)
	if len(caches) == 0 {
		return Skipped("the frontends know no worker")
	}
	var problems []string
	var lately cluster.KVAccuracy
	for _, c := range caches {
		problems = append(problems, c.Problems(now)...)
		if c.Index.Recent != nil {
			lately = lately.Plus(*c.Index.Recent)
		}
	}
	text := fmt.Sprintf("%s followed by %s", human.Plural(len(caches), "KV cache"), human.Plural(len(all), "frontend"))
	if share, known := lately.FalseShare(); known {
		text += fmt.Sprintf("; %.0f%% of %s predicted in the last minute were not there", share*100, human.Plural(int(lately.Predicted), "block"))
	}
	f := good("%s", text)
	if len(problems) > 0 {
		f = poor("dynctl get index -o wide", "%s", firstOf(problems))
	}
	return f.With("workers", len(caches)).With("predicted_blocks", lately.Predicted).With("false_blocks", lately.False)
}
