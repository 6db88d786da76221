package cputest
import ("testing";"math"
 "github.com/dynctl/dynctl/internal/model"
 "github.com/dynctl/dynctl/internal/model/modeltest"
 "github.com/dynctl/dynctl/internal/engine/cpu"
 )
func stats(t *testing.T, name, dir string) {
	r := New(t, dir, cpu.Options{})
	V := r.Backend.Info().TokenLimit
	mk := func(s, n int) []uint32 { p := make([]uint32,n); for i:=range p { p[i]=uint32((i*i*7+s*13+i*s*31+256)%(V-3)) }; return p }
	var distinct, imm, favs float64
	all := map[uint32]int{}
	for s:=0;s<6;s++ {
		o := r.Greedy(mk(s,20),100)
		m := map[uint32]bool{}; for i,x:=range o { m[x]=true; all[x]++; if i>0&&o[i-1]==x {imm++} }
		distinct += float64(len(m))
	}
	mx:=0; for _,c:=range all { if c>mx {mx=c} }
	favs=float64(mx)/600
	// influence of first prompt token at distance 20, 60
	infl := func(n int) float64 { c:=0.0; for s:=0;s<10;s++ { p:=mk(s,n); a:=r.Greedy(p,1)[0]; q:=append([]uint32(nil),p...); q[0]=(q[0]+5)%uint32(V-3); if r.Greedy(q,1)[0]!=a {c++} }; return c/10 }
	_ = r.Greedy(mk(1,20),1); var ss float64; for _,l:=range r.logits[:V] { ss+=float64(l)*float64(l) }
	t.Logf("%-20s distinct %.0f imm %.2f top %.2f union %d infl20 %.1f infl60 %.1f std %.2f", name, distinct/6, imm/600, favs, len(all), infl(20), infl(60), math.Sqrt(ss/float64(V)))
}
func TestTmp(t *testing.T) {
	dir, err := model.Builtin(t.TempDir()); if err!=nil {t.Fatal(err)}
	stats(t,"builtin",dir)
	for _, s := range []struct{n string; s modeltest.Spec}{{"llama",modeltest.Spec{}},{"qwen3 tied",modeltest.Spec{Family:"qwen3",Tied:true,KVHeads:2}},{"bigger",modeltest.Spec{Layers:4,Hidden:128,Vocab:1280}}} {
		stats(t,s.n,modeltest.Generate(t,s.s))
	}
}
