/* SPDX-License-Identifier: BSD-3-Clause */
/* diskctl SOCKET COMMAND...: one command to a disk model, its answer on
 * stdout.  control.h has the commands.  Exit: 0, 1 if the command failed, 2 if
 * it could not be asked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void
die(const char *what, const char *path)
{
    fprintf(stderr, "diskctl: %s: ", what);
    perror(path);
    exit(2);
}

static FILE *
connect_to(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    FILE *control;

    if (strlen(path) >= sizeof addr.sun_path) {
        fprintf(stderr, "diskctl: %s: expected a shorter path\n", path);
        exit(2);
    }
    memcpy(addr.sun_path, path, strlen(path) + 1);
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0)
        die("connect", path);
    control = fdopen(fd, "r+");
    if (!control)
        die("fdopen", path);
    return control;
}

int
main(int argc, char **argv)
{
    FILE *control;
    char *answer = NULL;
    size_t size = 0;
    int i, is_error;

    if (argc < 3) {
        fprintf(stderr, "usage: diskctl SOCKET COMMAND [NAME=VALUE...]\n");
        return 2;
    }
    control = connect_to(argv[1]);
    for (i = 2; i < argc; i++)
        fprintf(control, "%s%c", argv[i], i + 1 < argc ? ' ' : '\n');
    if (fflush(control) != 0)
        die("write", argv[1]);
    if (getline(&answer, &size, control) <= 0) {
        fprintf(stderr, "diskctl: %s: no answer\n", argv[1]);
        return 2;
    }
    fputs(answer, stdout);
    is_error = strncmp(answer, "{\"error\"", 8) == 0;
    free(answer);
    fclose(control);
    return is_error;
}
