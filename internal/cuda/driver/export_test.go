package driver

// OpenLibrary is Open with another library.
func OpenLibrary(path string) (Driver, error) {
	d, err := open(path)
	if err != nil {
		return nil, err
	}
	return d, nil
}
