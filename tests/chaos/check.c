/* What runs inside the containers of the chaos test. Without arguments it is an init. Else:
 *   check ID NUMBER COUNT MILLISECONDS CHILD_MILLISECONDS
 * For each of its units it locks the byte of its container's number in the unit's file, and looks whether a byte of
 * another container is locked: who has the same unit at the same time is seen by the later of the two. The kernel lets go
 * of the locks when the last process that has them dies, of whatever. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *id;

static void say(const char *file, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, text, length) != length)
        abort();
    close(fd);
}

static void look(int fd, const char *unit, off_t from, off_t length) {
    struct flock other = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = length};
    if (fcntl(fd, F_OFD_GETLK, &other) < 0)
        abort();
    if (other.l_type != F_UNLCK)
        say("wrong", "%s has %s beside c%lld\n", id, unit, (long long)other.l_start);
}

int main(int argc, char **argv) {
    if (argc != 6) {
        for (;;)
            pause();
    }
    id = argv[1];
    off_t number = atoll(argv[2]);
    int want = atoi(argv[3]), has = 0;
    const char *given = getenv("NVIDIA_VISIBLE_DEVICES");
    char units[256] = "";
    strncat(units, given ? given : "", sizeof units - 1);
    for (char *unit = strtok(units, ","); unit; unit = strtok(NULL, ",")) {
        int fd = open(unit, O_RDWR | O_CREAT, 0666);
        struct flock own = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = number, .l_len = 1};
        if (fd < 0 || fcntl(fd, F_OFD_SETLK, &own) < 0)
            abort();
        look(fd, unit, 0, number);
        look(fd, unit, number + 1, 0);
        has++;
    }
    if (has != want)
        say("wrong", "%s has %d units (%s) of %d\n", id, has, given ? given : "", want);
    say("ran", "\n");
    /* One that its parent leaves behind has what it had. */
    int after = atoi(argv[5]);
    if (after && fork() == 0) {
        usleep(1000 * after);
        _exit(0);
    }
    usleep(1000 * atoi(argv[4]));
    return 0;
}
