package model

// SeesImages reports whether the model has a vision tower, which turns images into
// embeddings. Only then can it have encode workers.
func (c Config) SeesImages() bool { return c.Vision != nil }

// TowerBytes returns how many bytes the weights of the vision tower have as they are
// stored, 0 without one.
func (m *Model) TowerBytes() (n int64) {
	for _, t := range m.specs {
		if t.Role.Vision() {
			n += m.TensorBytes(t.Name)
		}
	}
	return n
}
