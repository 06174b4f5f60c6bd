package localpubsub

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// A journal's file begins with its magic. Each record follows in a frame: its
// length, its checksum, the checksum of these two, and the record.
//
// If a file is cut off in the middle of its last frame, or holds only zeros
// from some byte of it on, a kill or a loss of power took its end: that frame
// is left out. An invalid frame anywhere else means that the file is damaged.
// The server then refuses the file and does not guess its content.
const (
	journalMagic = "localpubsub journal 1\n"
	frameHeader  = 12
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendFrame(b []byte, r *record) []byte {
	start := len(b)
	b = append(b, make([]byte, frameHeader)...)
	b = r.appendTo(b)
	header, payload := b[start:start+frameHeader], b[start+frameHeader:]
	binary.LittleEndian.PutUint32(header, uint32(len(payload)))
	binary.LittleEndian.PutUint32(header[4:], crc32.Checksum(payload, castagnoli))
	binary.LittleEndian.PutUint32(header[8:], crc32.Checksum(header[:8], castagnoli))
	return b
}

var errFrame = errors.New("the file is damaged: a record is not as it was written")

// readFrames calls apply with the bytes of each record. An error names the
// offset.
func readFrames(file *os.File, apply func([]byte) error) error {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	reader := bufio.NewReaderSize(file, spareLimit)
	magic := make([]byte, len(journalMagic))
	if _, err := io.ReadFull(reader, magic); err != nil || string(magic) != journalMagic {
		return errors.New("offset 0: this is no journal of a local Pub/Sub")
	}
	for offset := int64(len(magic)); offset < info.Size(); {
		payload, err := readFrame(reader, info.Size()-offset)
		if err == nil {
			err = apply(payload)
		} else if lost, lostErr := tornAt(file, offset, info.Size()); lostErr != nil || lost {
			return lostErr
		}
		if err != nil {
			return fmt.Errorf("offset %d: %w", offset, err)
		}
		offset += frameHeader + int64(len(payload))
	}
	return nil
}

// readFrame reads one frame; available is the number of bytes left in the file.
func readFrame(from io.Reader, available int64) ([]byte, error) {
	header := make([]byte, frameHeader)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, err
	}
	length, ok := frameLength(header)
	if !ok || frameHeader+length > available {
		return nil, errFrame
	}
	payload := make([]byte, length)
	if _, err := io.ReadFull(from, payload); err != nil {
		return nil, err
	}
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(header[4:]) {
		return nil, errFrame
	}
	return payload, nil
}

func frameLength(header []byte) (length int64, ok bool) {
	return int64(binary.LittleEndian.Uint32(header)),
		crc32.Checksum(header[:8], castagnoli) == binary.LittleEndian.Uint32(header[8:])
}

// tornAt reports whether the unreadable frame at offset is the last one and
// only lacks its end.
func tornAt(file io.ReaderAt, offset, size int64) (bool, error) {
	end, err := lastWritten(file, offset, size)
	if err != nil || end < offset+frameHeader {
		return err == nil, err
	}
	header := make([]byte, frameHeader)
	if _, err := file.ReadAt(header, offset); err != nil {
		return false, err
	}
	length, ok := frameLength(header)
	return ok && end <= offset+frameHeader+length, nil
}

// lastWritten returns the offset of the zeros at the end of the file, not
// before offset.
func lastWritten(file io.ReaderAt, offset, size int64) (int64, error) {
	block := make([]byte, 64<<10)
	for size > offset {
		n := min(int64(len(block)), size-offset)
		if _, err := file.ReadAt(block[:n], size-n); err != nil {
			return 0, err
		}
		for i := n - 1; i >= 0; i-- {
			if block[i] != 0 {
				return size - n + i + 1, nil
			}
		}
		size -= n
	}
	return offset, nil
}

// openFile opens or creates a file and locks it for as long as it is open.
func openFile(path string) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the path is the user's own
		if err != nil {
			return nil, err
		}
		if err := lockFile(file); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		mine, err := file.Stat()
		if err == nil && !mine.Mode().IsRegular() {
			err = fmt.Errorf("%s is no regular file", path)
		}
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		// The former owner may have replaced the file just before its lock was
		// released.
		if there, err := os.Stat(path); err == nil && os.SameFile(mine, there) {
			return file, nil
		}
		_ = file.Close() // nothing was written to it
	}
}

// replaceFile replaces a file in one step by a new one with the records from
// dump. The new file is locked before any process can find it, and on the disk
// before the old one is gone.
func replaceFile(path string, dump func(write func(*record) error) error) (_ *os.File, size int64, err error) {
	aside := path + ".new"
	file, err := os.OpenFile(aside, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // the path is the user's own
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(aside)
			err = errors.Join(err, file.Close())
		}
	}()
	if err := lockFile(file); err != nil {
		return nil, 0, err
	}
	if size, err = fill(file, dump); err != nil {
		return nil, 0, err
	}
	if err := file.Sync(); err != nil {
		return nil, 0, err
	}
	if err := os.Rename(aside, path); err != nil {
		return nil, 0, err
	}
	syncDirectory(filepath.Dir(path))
	return file, size, nil
}

func fill(file io.Writer, dump func(write func(*record) error) error) (size int64, err error) {
	writer := bufio.NewWriterSize(file, spareLimit)
	n, err := writer.WriteString(journalMagic)
	if err != nil {
		return 0, err
	}
	size = int64(n)
	var frame []byte
	err = dump(func(r *record) error {
		frame = appendFrame(frame[:0], r)
		n, err := writer.Write(frame)
		size += int64(n)
		return err
	})
	if err != nil {
		return 0, err
	}
	return size, writer.Flush()
}

// syncDirectory makes a rename survive a loss of power, where the file system
// supports it.
func syncDirectory(path string) {
	directory, err := os.Open(path) //nolint:gosec // the path is the user's own
	if err != nil {
		return
	}
	_ = directory.Sync()
	_ = directory.Close()
}
