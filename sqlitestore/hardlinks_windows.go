package sqlitestore

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// hardLinks returns the number of names that the file has.
func hardLinks(path string, _ fs.FileInfo) (int, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	var found windows.ByHandleFileInformation
	err = windows.GetFileInformationByHandle(windows.Handle(file.Fd()), &found)
	return int(found.NumberOfLinks), errors.Join(err, file.Close())
}
