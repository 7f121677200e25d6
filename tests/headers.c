/* Compiled once per public header, alone and as strict C11: each header brings what it needs. */
#include HEADER

int main(void)
{
    return 0;
}
