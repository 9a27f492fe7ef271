package sqlitestore

import "syscall"

// networkTypes are file systems of other machines, or of the host of a virtual machine, by the numbers of statfs(2).
var networkTypes = map[int64]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x564c:     "NCP",
	0x01021997: "9P",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x73757245: "Coda",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
	0x19830326: "BeeGFS",
	0x20030528: "OrangeFS",
	0x786f4256: "VirtualBox shared folder",
	0xbacbacbc: "VMware shared folder",
	0x7c7c6673: "Parallels shared folder",
}

// networkFile returns the kind of network file system that a folder is on, or an empty string if it is not on a known
// one.
func networkFile(folder string) (string, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(folder, &stat); err != nil {
		return "", err
	}
	return networkTypes[int64(uint32(stat.Type))], nil
}
