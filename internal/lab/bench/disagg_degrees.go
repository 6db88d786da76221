package bench

import (
	"context"
	"fmt"

	"github.com/dynctl/dynctl/internal/protocol"
)

const keyEqualDegree = "times_one_rank"

// degrees holds the numbers of ranks of a prefill and a decode worker.
type degrees struct{ prefill, decode int }

func (d degrees) String() string { return fmt.Sprintf("%d to %d", d.prefill, d.decode) }

// otherDegrees measures the cost of transfers between different numbers of ranks.
func (d *disaggBench) otherDegrees(ctx context.Context, sec *Section) error {
	sc := d.scale.disagg
	length := sc.prompts[len(sc.prompts)-1]
	one := degrees{1, 1}
	var cases []Case
	for _, ranks := range []degrees{one, {2, 2}, {2, 1}, {1, 2}} {
		n, err := d.node(ctx, nodeSpec{
			name: "degree " + ranks.String(), strategy: protocol.StrategyDecodeFirst, prefill: 1, decode: 1, degrees: ranks,
			model: d.model, blocks: 2*length/rigBlockSize + 8, devices: d.devices(),
		})
		if err != nil {
			return err
		}
		defer n.close() // few, and all are used until the last round
		cases = append(cases, Case{ranks.String(), func(ctx context.Context) (Sample, error) { return d.firstToken(ctx, n, length) }})
	}
	res, err := d.takeTurns(ctx, "disagg, tensor-parallel degrees", sc.turns, cases)
	if err != nil {
		return err
	}
	for _, c := range cases {
		res.ratio(c.Name, keyEqualDegree, keyWrite, one.String(), 1)
	}
	sec.Tables = append(sec.Tables, res.table("Transfers between tensor-parallel degrees",
		fmt.Sprintf("The same prompts of %d tokens, one at a time, by the strategy decode-first, from a prefill worker with so\n"+
			"many ranks to a decode worker with so many. Each rank has memory of its own for its share of the heads\n"+
			"of a block, so that a block takes as many pieces as the larger degree.", length), []Column{
			{keyWrite, "transfer ms", "time spent moving the KV of the prompt"},
			{keyEqualDegree, "× 1 to 1", "time of the transfer"},
			{keyExposed, "exposed ms", "from the end of the computation to the last block in place"},
			{keyTTFT, "TTFT ms", ""},
		}))
	return nil
}
